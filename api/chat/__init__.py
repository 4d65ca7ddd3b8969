"""Runs started over HTTP."""
