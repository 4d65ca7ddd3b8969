"""Executors run the calls of tools. Each kind of tool has a folder."""
