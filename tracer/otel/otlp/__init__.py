"""OTLP, the protocol of OpenTelemetry: decode requests, and redact their spans.

A decoder returns all valid spans of a request by trace, and the reason for each invalid one. This
package needs the extra `otel`, so code that also runs without it imports this package when used.

Public modules:

- `spans`: spans and log records as protobuf, JSON and Python values
- `blocks`: the spans of one trace, compressed, as they are sent and stored
"""

from tracer.otel.otlp.decode import (
    LOGS,
    NO_SESSION,
    SPANS,
    Decoded,
    Signal,
    UndecodableTraces,
    by_signal,
    decode_json,
    decode_logs_json,
    decode_logs_protobuf,
    decode_protobuf,
    request_of,
)
from tracer.otel.otlp.redact import redacted_traces

__all__ = [
    "LOGS",
    "NO_SESSION",
    "SPANS",
    "Decoded",
    "Signal",
    "UndecodableTraces",
    "by_signal",
    "decode_json",
    "decode_logs_json",
    "decode_logs_protobuf",
    "decode_protobuf",
    "redacted_traces",
    "request_of",
]
