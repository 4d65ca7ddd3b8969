"""Spans to OTLP again: exactly what came, whatever became of it here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tracer.otel.otlp.protobuf import bytes_field
from tracer.otel.otlp.spans import Span


def encode_protobuf(spans: Iterable[Span]) -> bytes:
    """Return a serialized `ExportTraceServiceRequest` (and so a `TracesData`) with the spans."""
    return b"".join(protobuf_parts(spans))


def protobuf_parts(spans: Iterable[Span]) -> Iterator[bytes]:
    """Yield what `encode_protobuf` returns, a span at a time."""
    return (bytes_field(1, span.body) for span in spans)


def encode_json(spans: Iterable[Span]) -> bytes:
    """Return the same as OTLP/JSON: hex ids, enums as numbers, 64-bit integers as text."""
    return b"".join(json_parts(spans))


def json_parts(spans: Iterable[Span]) -> Iterator[bytes]:
    """Yield what `encode_json` returns, a span at a time."""
    before = b'{"resourceSpans":['
    for span in spans:
        yield before + orjson.dumps(_json_of(span))
        before = b","
    yield b"]}" if before == b"," else before + b"]}"


def _json_of(span: Span) -> dict[str, Any]:
    message: dict[str, Any] = json_format.MessageToDict(
        ResourceSpans.FromString(span.body), use_integers_for_enums=True
    )
    for scope_spans in message["scopeSpans"]:
        for each in scope_spans["spans"]:
            _hex_ids(each)
            for link in each.get("links", ()):
                _hex_ids(link)
    return message


def _hex_ids(fields: dict[str, Any]) -> None:
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in fields:
            fields[name] = base64.b64decode(fields[name]).hex()
