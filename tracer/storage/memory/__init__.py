"""What a process holds in memory: a recording for tests, and states of sessions."""
