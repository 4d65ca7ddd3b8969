"""Tools that are objects with an instance per conversation."""
