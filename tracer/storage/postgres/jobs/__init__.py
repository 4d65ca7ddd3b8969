"""Periodic work of a server."""
