"""Records everything in memory: no server, no database."""

pytest_plugins = ["tracer.testing"]
