"""The server: the REST API, the viewer, and the `tracer` commands that need the database."""
