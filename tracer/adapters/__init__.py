"""Adapters: record the runs of other agent frameworks, and convert their tools."""
