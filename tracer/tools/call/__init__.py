"""The path of a tool call."""
