"""Routes that list and read tool calls."""
