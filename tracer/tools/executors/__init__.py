"""Executors: one folder per kind of tool, which runs its calls."""
