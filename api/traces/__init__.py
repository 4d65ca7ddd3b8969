"""OTLP ingest."""
