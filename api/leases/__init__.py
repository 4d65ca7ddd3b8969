"""Leases of recorders."""
