"""Event ingest."""
