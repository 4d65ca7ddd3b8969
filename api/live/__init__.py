"""Changes of a run as server-sent events."""
