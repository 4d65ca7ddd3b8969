"""The route that records events."""
