"""Values without I/O: record classes, events, merge rules, prices."""
