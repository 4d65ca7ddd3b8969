"""OpenTelemetry: decode, store and encode spans, and convert between spans and records.

All functions are pure. They do no I/O. The packages `otlp` (bytes ↔ spans), `dialects` (spans →
facts) and `projection` (spans → records) need the extra `otel`.

Public modules:

- `export`: records → spans of the GenAI conventions
"""
