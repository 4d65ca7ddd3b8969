"""Tools that are functions."""
