"""Statistics of tool calls, and their hourly roll-ups."""
