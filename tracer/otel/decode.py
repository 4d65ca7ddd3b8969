"""OTLP request bodies in protobuf to spans. What cannot be stored is refused by itself."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from tracer.otel.wire import Malformed, bytes_field, bytes_fields, most_fields
from tracer.otel.wire_spans import (
    Around,
    Decoded,
    UndecodableTraces,
    parsed_in_request,
    refuse,
    refuse_all,
    take,
)

_FIELD_BYTES = 40
"""About what a field takes up in memory besides what it says."""


def decode_protobuf(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the spans of an `ExportTraceServiceRequest`.

    Args:
        body: The serialized request.
        max_size: How much memory its spans may take up; None: any amount.

    Raises:
        UndecodableTraces: The body is no such message; a span in it that is none is refused.
        TooLarge: Its spans take up more.
    """
    decoded = Decoded(max_size=max_size)
    decoded.grow(_FIELD_BYTES * most_fields(body))
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        return _decoded_by_parts(body, decoded)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            around = Around.of_messages(resource_spans, scope_spans)
            for span in scope_spans.spans:
                take(decoded, around, span)
    return decoded


def _decoded_by_parts(body: bytes, decoded: Decoded) -> Decoded:
    try:
        for resource_spans in _parts(body, 1):
            for scope_spans in _parts(resource_spans, 2):
                spans = list(_parts(scope_spans, 2))
                try:
                    around = _around_of_parts(resource_spans, scope_spans)
                except DecodeError:
                    refuse_all(decoded, spans)
                    continue
                for span in spans:
                    try:
                        take(decoded, around, parsed_in_request(around, span))
                    except DecodeError as error:
                        refuse(decoded, _said(error))
    except Malformed as error:
        raise UndecodableTraces(f"The body is no OTLP trace request: {error}") from error
    return decoded


def _parts(message: bytes, number: int) -> Iterator[bytes]:
    return (content for each, content in bytes_fields(message) if each == number)


def _around_of_parts(resource_spans: bytes, scope_spans: bytes) -> Around:
    outer, inner = ResourceSpans(), ScopeSpans()
    for number, content in bytes_fields(resource_spans):
        if number != 2:
            outer.MergeFromString(bytes_field(number, content))
    for number, content in bytes_fields(scope_spans):
        if number != 2:
            inner.MergeFromString(bytes_field(number, content))
    return Around.of_messages(outer, inner)


def _said(error: DecodeError) -> str:
    text = str(error)
    if "UTF-8" in text:
        return "A string in it is not valid UTF-8."
    return "It cannot be parsed: it is cut off, malformed, or nests too deeply."
