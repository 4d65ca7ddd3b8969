"""Records to spans."""
