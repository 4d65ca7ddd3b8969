"""The chat route, which starts a run for a user's message."""
