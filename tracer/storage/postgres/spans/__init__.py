"""Spans to blocks, and blocks to records."""
