"""Decode OTLP request bodies in protobuf. A span that cannot be stored is rejected by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.protobuf import Malformed, bytes_field, bytes_fields, most_fields
from tracer.otel.otlp.protobuf_spans import Around, scopes_of
from tracer.otel.otlp.request_spans import (
    ByTrace,
    Decoded,
    UndecodableTraces,
    accept,
    parse_around,
    parse_span,
    why_refused,
)

Message = TypeVar("Message", ResourceSpans, ScopeSpans)

_FIELD_BYTES = 40
"""About how much memory a field takes, without its content."""


def decode_protobuf(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the spans of an `ExportTraceServiceRequest`.

    If all spans are accepted and belong to one trace, its message is `body` itself.

    Args:
        body: The serialized request.
        max_size: How much memory its spans may take, in bytes; None: any amount.

    Raises:
        UndecodableTraces: The body is not such a message. A malformed span in it is rejected alone.
        TooLarge: Its spans take more.
    """
    decoded = Decoded(max_size)
    decoded.grow(_FIELD_BYTES * most_fields(body))
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        return _decode_by_parts(body, decoded)
    # A span is in memory twice: as bytes, and decoded.
    decoded.grow(2 * len(body))
    trace_ids = _check(request, decoded)
    distinct = set(trace_ids)
    if len(distinct) == 1 and not decoded.refused:
        decoded.traces.append(TraceSpans(distinct.pop(), body, decoded.count))
        decoded.places += range(decoded.count)
    elif distinct:
        _assemble(request, decoded, trace_ids)
    return decoded


def _check(request: ExportTraceServiceRequest, decoded: Decoded) -> list[bytes]:
    """Check all spans of a request, and return the trace ids of those that are accepted."""
    trace_ids: list[bytes] = []
    for resource_spans, scope_spans in scopes_of(request):
        accepted_before = len(trace_ids)
        for span in scope_spans.spans:
            trace_id = span.trace_id
            reason = why_refused(span, trace_id)
            if reason is None:
                trace_ids.append(trace_id)
                decoded.count += 1
            else:
                decoded.refuse(reason)
        around_size = (
            resource_spans.resource.ByteSize()
            + scope_spans.scope.ByteSize()
            + len(resource_spans.schema_url)
            + len(scope_spans.schema_url)
        )
        decoded.grow(around_size)
        decoded.grow_by_spans(len(trace_ids) - accepted_before, around_size)
    return trace_ids


def _assemble(request: ExportTraceServiceRequest, decoded: Decoded, trace_ids: list[bytes]) -> None:
    """Set the traces of a request, from the bytes of its accepted spans."""
    by_trace = ByTrace()
    refused = {each.index for each in decoded.refused}
    accepted_ids = iter(trace_ids)
    place = 0
    for resource_spans, scope_spans in scopes_of(request):
        accepted = []
        for span in scope_spans.spans:
            if place not in refused:
                content = span.SerializeToString(deterministic=True)
                accepted.append((place, next(accepted_ids), content))
            place += 1
        if accepted:
            by_trace.add(Around.of_messages(resource_spans, scope_spans), accepted)
    by_trace.move_to(decoded)


def _decode_by_parts(body: bytes, decoded: Decoded) -> Decoded:
    """Decode a request in which something cannot be parsed, each of its spans by itself."""
    by_trace = ByTrace()
    try:
        for resource_spans in _parts(body, 1):
            resource = _without_items(ResourceSpans, resource_spans)
            for scope_spans in _parts(resource_spans, 2):
                spans = list(_parts(scope_spans, 2))
                if not spans:
                    continue
                scope = _without_items(ScopeSpans, scope_spans)
                around = parse_around(decoded, resource, scope)
                if around is None:
                    decoded.refuse_all(spans)
                else:
                    by_trace.add(around, _accepted(decoded, around, spans))
    except Malformed as error:
        raise UndecodableTraces(f"The body is not an OTLP trace request: {error}") from error
    by_trace.move_to(decoded)
    return decoded


def _accepted(
    decoded: Decoded, around: Around, spans: list[bytes]
) -> Iterator[tuple[int, bytes, bytes]]:
    for content in spans:
        try:
            span = parse_span(content)
        except DecodeError as error:
            decoded.refuse(_reason_of(error))
        else:
            yield from accept(decoded, around, span)


def _parts(message: bytes, number: int) -> Iterator[bytes]:
    return (content for each, content in bytes_fields(message) if each == number)


def _without_items(kind: type[Message], message: bytes) -> Message | None:
    """Return a message with all fields but its scopes or spans; None if they are malformed."""
    fields = [bytes_field(number, each) for number, each in bytes_fields(message) if number != 2]
    try:
        return kind.FromString(b"".join(fields))
    except DecodeError:
        return None


def _reason_of(error: DecodeError) -> str:
    if "UTF-8" in str(error):
        return "A string in it is not valid UTF-8."
    return "It cannot be parsed: it is cut off, malformed, or nests too deeply."
