"""Events to rows."""
