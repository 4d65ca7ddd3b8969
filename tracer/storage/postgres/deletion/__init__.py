"""Soft deletion and purge of runs."""
