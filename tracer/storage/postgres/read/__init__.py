"""Trees, lists, changes and whole runs."""
