"""OpenTelemetry spans in and out, and the records that they are projected into: pure, no I/O."""
