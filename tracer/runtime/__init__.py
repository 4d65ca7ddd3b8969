"""The planner runtime: turns requests into plans, runs them, and records it all as it happens."""
