"""Health and metrics of the server."""
