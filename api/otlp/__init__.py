"""Routes that receive OpenTelemetry data (OTLP): traces, logs and metrics."""
