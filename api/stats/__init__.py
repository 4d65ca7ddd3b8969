"""Statistics of tools."""
