"""OTLP, the protocol of OpenTelemetry: decode and encode requests, and store their spans."""
