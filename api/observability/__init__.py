"""The server's own metrics and spans."""
