"""Routes for the health and the metrics of the server."""
