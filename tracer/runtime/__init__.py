"""The planner runtime: turns requests into plans, runs the plans, and records each step."""
