"""Runs out and in again: exports as JSON lines and as OTLP, and importing both."""
