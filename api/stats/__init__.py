"""Routes for statistics of tool calls."""
