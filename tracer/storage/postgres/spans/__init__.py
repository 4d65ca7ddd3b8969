"""Stores spans as blocks, and projects blocks to records."""
