"""Convert records to OpenTelemetry spans."""
