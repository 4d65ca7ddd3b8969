"""The route that streams the changes of a run as server-sent events."""
