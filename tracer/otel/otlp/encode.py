"""Encode stored spans and log records as OTLP, with the content that they arrived with."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tracer.otel.otlp.logs import encode_logs
from tracer.otel.otlp.protobuf import StoredParts
from tracer.records.spans import LogRecord, Span


def encode_protobuf(spans: Iterable[Span]) -> bytes:
    """Return spans as a serialized `ExportTraceServiceRequest`, which is also a `TracesData`."""
    message: bytes = StoredParts(resource_spans=[span.body for span in spans]).SerializeToString()
    return message


def protobuf_parts(spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> Iterator[bytes]:
    """Yield a stored message (`tracer.otel.otlp.logs`) in parts: one span or log record each.

    Programs that parse the message as `TracesData` skip the log records.
    """
    yield from (encode_protobuf([span]) for span in spans)
    yield from (encode_logs([record]) for record in logs)


def encode_json(spans: Iterable[Span]) -> bytes:
    """Return spans as OTLP/JSON.

    Ids are hexadecimal, enums are numbers, and 64-bit integers are text.
    """
    return b"".join(json_parts(spans))


def json_parts(spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> Iterator[bytes]:
    """Yield an OTLP/JSON document in parts: one span or log record each.

    The document has the key `resourceLogs` only if there are log records.
    """
    before = b'{"resourceSpans":['
    for span in spans:
        yield before + _json_of(ResourceSpans.FromString(span.body))
        before = b","
    yield b"]" if before == b"," else before + b"]"
    before = b',"resourceLogs":['
    for record in logs:
        yield before + _json_of(ResourceLogs.FromString(record.sent))
        before = b","
    yield b"]}" if before == b"," else b"}"


def _json_of(resource: ResourceSpans | ResourceLogs) -> bytes:
    message: dict[str, Any] = json_format.MessageToDict(resource, use_integers_for_enums=True)
    for scope_items in message.get("scopeSpans", message.get("scopeLogs", ())):
        for each in scope_items.get("spans", scope_items.get("logRecords", ())):
            _hex_ids(each)
            for link in each.get("links", ()):
                _hex_ids(link)
    return orjson.dumps(message)


def _hex_ids(fields: dict[str, Any]) -> None:
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in fields:
            fields[name] = base64.b64decode(fields[name]).hex()
