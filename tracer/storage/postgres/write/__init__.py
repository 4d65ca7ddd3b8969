"""Writes events as rows, and renews leases."""
