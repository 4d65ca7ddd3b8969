"""Tools: what a model may call, how they are defined, found and run."""
