"""The signals of OTLP that Tracer stores: spans and log records.

The requests of both signals have the same structure, so the decoders work for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.logs import logs_in
from tracer.otel.otlp.protobuf import StoredMessage, StoredParts
from tracer.otel.otlp.protobuf_spans import MAX_TIME
from tracer.records.spans import SPAN_ID_BYTES, TRACE_ID_BYTES, LogRecord, TraceSpans

NO_TRACE = f"Its trace id must be {TRACE_ID_BYTES} bytes that are not all zero."
"""The reason if a span or log record is rejected because it has no trace id."""

_NO_TRACE_ID = bytes(TRACE_ID_BYTES)
_NO_SPAN_ID = bytes(SPAN_ID_BYTES)

SessionOf = Callable[[LogRecord], str | None]
"""A function that returns the session of a log record without a trace id; None if the record names
no session."""


@dataclass(frozen=True)
class Signal:
    """A signal of OTLP: the names and types in its requests, and the check of a single item."""

    name: str
    """`trace` or `log`."""
    item: str
    """The word for one item: `span` or `log record`."""
    resources: str
    """The name of the field of a request, and of a stored message, with the list of resources.
    `scopes` and `items` name the fields with the scopes of a resource and the items of a scope."""
    scopes: str
    items: str
    response_type: Any
    rejected: str
    """The field of a partial success that counts rejected items."""
    request_type: Any
    resource_type: Any
    scope_type: Any
    item_type: Any
    why_refused: Callable[[Any, bytes], str | None]
    """Returns why an item with this trace id cannot be stored; None if it can."""
    session_of: SessionOf | None = None
    """Finds the session of an item without a trace id; None: all such items are rejected."""


def _problem_of_span(span: WireSpan, trace_id: bytes) -> str | None:
    # Called for each span of each request, so each field is read once.
    span_id, parent_span_id = span.span_id, span.parent_span_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE_ID:
        return NO_TRACE
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN_ID:
        return f"Its span id must be {SPAN_ID_BYTES} bytes that are not all zero."
    if len(parent_span_id) not in (0, SPAN_ID_BYTES) and any(parent_span_id):
        return f"Its parent span id must be {SPAN_ID_BYTES} bytes."
    if span.start_time_unix_nano >= MAX_TIME or span.end_time_unix_nano >= MAX_TIME:
        return _TOO_LATE
    return None


def _problem_of_log(record: WireLogRecord, trace_id: bytes) -> str | None:
    if len(record.span_id) not in (0, SPAN_ID_BYTES):
        return f"Its span id must be {SPAN_ID_BYTES} bytes."
    if record.time_unix_nano >= MAX_TIME or record.observed_time_unix_nano >= MAX_TIME:
        return _TOO_LATE
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE_ID:
        return NO_TRACE
    return None


_TOO_LATE = "Its times must lie before the year 2262."

SPANS = Signal(
    name="trace",
    item="span",
    resources="resource_spans",
    scopes="scope_spans",
    items="spans",
    response_type=ExportTraceServiceResponse,
    rejected="rejected_spans",
    request_type=ExportTraceServiceRequest,
    resource_type=ResourceSpans,
    scope_type=ScopeSpans,
    item_type=WireSpan,
    why_refused=_problem_of_span,
)

LOGS = Signal(
    name="log",
    item="log record",
    resources="resource_logs",
    scopes="scope_logs",
    items="log_records",
    response_type=ExportLogsServiceResponse,
    rejected="rejected_log_records",
    request_type=ExportLogsServiceRequest,
    resource_type=ResourceLogs,
    scope_type=ScopeLogs,
    item_type=WireLogRecord,
    why_refused=_problem_of_log,
)


def by_signal(trace: TraceSpans) -> list[tuple[Signal, TraceSpans]]:
    """Split a stored message into one with spans and one with log records.

    A message without items is omitted.
    """
    parts = StoredParts.FromString(trace.message)
    if not (parts.resource_spans and parts.resource_logs):
        return [(LOGS if parts.resource_logs else SPANS, trace)]
    logs = StoredParts(resource_logs=parts.resource_logs).SerializeToString()
    spans = StoredParts(resource_spans=parts.resource_spans).SerializeToString()
    count = sum(1 for _ in logs_in(StoredMessage.FromString(logs)))
    return [
        (SPANS, TraceSpans(trace.trace_id, spans, trace.count - count)),
        (LOGS, TraceSpans(trace.trace_id, logs, count)),
    ]


def request_of(signal: Signal, message: bytes) -> bytes:
    """Return a stored message as an export request. It must contain items of one signal only."""
    if signal.resources == SPANS.resources:
        return message
    logs = signal.request_type(resource_logs=StoredMessage.FromString(message).resource_logs)
    request: bytes = logs.SerializeToString()
    return request
