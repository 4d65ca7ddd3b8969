"""The route that compares two runs."""
