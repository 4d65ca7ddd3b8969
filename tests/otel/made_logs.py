"""Log records made for tests."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord

from tests.otel.made_traces import TRACE_ID
from tracer.otel.dialects import session_of
from tracer.otel.otlp import decode_logs_protobuf
from tracer.records.spans import TraceSpans

SECOND = 10**9
ORIGIN = 1_700_000_000
"""The time from which `made_log` counts, in seconds since 1970."""


def made_log(
    name: str,
    at: int = 1,
    *,
    trace_id: str = TRACE_ID,
    span_id: int | None = None,
    body: str | None = None,
    **attributes: str,
) -> WireLogRecord:
    """Return a log record at a second."""
    record = WireLogRecord(event_name=name, time_unix_nano=(ORIGIN + at) * SECOND)
    record.trace_id = bytes.fromhex(trace_id)
    record.span_id = b"" if span_id is None else span_id.to_bytes(8)
    if body is not None:
        record.body.string_value = body
    for key, value in attributes.items():
        record.attributes.add(key=key.replace("__", ".")).value.string_value = value
    return record


def request_with(*records: Any, scope: str = "planner") -> ExportLogsServiceRequest:
    """Return a request with records of one scope."""
    request = ExportLogsServiceRequest()
    scope_logs = request.resource_logs.add().scope_logs.add()
    scope_logs.scope.name = scope
    scope_logs.log_records.extend(records)
    return request


def logs_as_traces(*records: Any, scope: str = "planner") -> list[TraceSpans]:
    """Return records as a store accepts them."""
    body = request_with(*records, scope=scope).SerializeToString()
    decoded = decode_logs_protobuf(body, session_of=session_of)
    assert decoded.refused == []
    return decoded.traces
