"""Routes that list, read, start, cancel, delete and export runs."""
