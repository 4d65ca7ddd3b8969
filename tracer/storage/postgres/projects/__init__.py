"""Projects, their keys, and who sent a request."""
