"""Serves the tracer's records: REST API, viewer, and the `tracer` command."""
