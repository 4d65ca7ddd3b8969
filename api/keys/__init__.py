"""API keys and sign-in."""
