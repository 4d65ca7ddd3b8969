"""Spans of a run."""
