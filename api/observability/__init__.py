"""Metrics and spans about the server itself."""
