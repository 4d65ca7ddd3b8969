"""Calls of tools, and the runs, budgets and batches that they belong to."""
