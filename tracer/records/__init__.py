"""What may be recorded: record classes, events, merge rules, prices. Values without I/O."""
