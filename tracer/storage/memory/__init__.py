"""Data in a process's memory: a recording for tests, and the states of sessions."""
