"""A project's own prices of models."""
