"""OTLP ingest: traces, logs and metrics."""
