"""Exports runs as JSON lines or OTLP, and imports both."""
