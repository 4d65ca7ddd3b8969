"""Routes that read a plan, or the tree below a plan."""
