"""Plain values: record classes, events, merge rules and prices. No I/O."""
