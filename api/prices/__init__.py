"""Routes for a project's own prices of models."""
