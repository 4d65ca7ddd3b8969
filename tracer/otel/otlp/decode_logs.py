"""Decode OTLP log requests. A log record that cannot be stored is rejected by itself."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord

from tracer.otel.otlp.decode_json import load_json
from tracer.otel.otlp.logs import LOGS_FIELD
from tracer.otel.otlp.protobuf_spans import MAX_TIME, Around
from tracer.otel.otlp.request_spans import ByTrace, Decoded, UndecodableTraces
from tracer.otel.otlp.spans import SPAN_ID_BYTES, TRACE_ID_BYTES


def decode_logs_protobuf(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the log records of an `ExportLogsServiceRequest`.

    Args:
        body: The serialized request.
        max_size: How much memory its records may take, in bytes; None: any amount.

    Raises:
        UndecodableTraces: The body is not such a message.
        TooLarge: Its records take more.
    """
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise UndecodableTraces("The body is not an OTLP log request.") from error
    return _decode(request, max_size)


def decode_logs_json(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the log records of an OTLP/JSON request, as `decode_logs_protobuf` does."""
    request = ExportLogsServiceRequest()
    try:
        json_format.ParseDict(
            _with_base64_ids(load_json(body)), request, ignore_unknown_fields=True
        )
    except (json_format.Error, ValueError, TypeError) as error:
        raise UndecodableTraces("The body is not an OTLP log request.") from error
    return _decode(request, max_size)


def _decode(request: ExportLogsServiceRequest, max_size: int | None) -> Decoded:
    decoded = Decoded(max_size)
    by_trace = ByTrace(LOGS_FIELD)
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            around = Around.of_messages(resource_logs, scope_logs)
            accepted = []
            for record in scope_logs.log_records:
                reason = _why_refused(record)
                if reason is not None:
                    decoded.refuse(reason)
                    continue
                content = record.SerializeToString(deterministic=True)
                decoded.grow(2 * len(content))
                decoded.grow_by_spans(1, around.size)
                accepted.append((decoded.count, record.trace_id, content))
                decoded.count += 1
            if accepted:
                by_trace.add(around, accepted)
    by_trace.move_to(decoded)
    return decoded


def _why_refused(record: WireLogRecord) -> str | None:
    """Return why a log record cannot be stored; None if it can."""
    if len(record.trace_id) != TRACE_ID_BYTES or not any(record.trace_id):
        return f"Its trace id must be {TRACE_ID_BYTES} bytes that are not all zero."
    if len(record.span_id) not in (0, SPAN_ID_BYTES):
        return f"Its span id must be {SPAN_ID_BYTES} bytes."
    if record.time_unix_nano >= MAX_TIME or record.observed_time_unix_nano >= MAX_TIME:
        return "Its times must lie before the year 2262."
    return None


def _with_base64_ids(request: Any) -> Any:
    """Return a request whose hex ids are base64, as protobuf's JSON mapping has them."""
    if not isinstance(request, dict):
        raise ValueError("The request must be an object.")
    for resource_logs in request.get("resourceLogs") or ():
        for scope_logs in resource_logs.get("scopeLogs") or ():
            for record in scope_logs.get("logRecords") or ():
                for name in ("traceId", "spanId"):
                    if record.get(name):
                        record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
    return request
