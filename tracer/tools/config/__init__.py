"""Tools in `tools.toml`."""
