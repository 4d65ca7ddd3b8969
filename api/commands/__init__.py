"""The `tracer` commands that start a server or connect to the database."""
