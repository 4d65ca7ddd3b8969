"""Build the tree of a run from rows, compute totals and compare trees. All functions are pure."""
