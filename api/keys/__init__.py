"""Routes for API keys and for signing in."""
