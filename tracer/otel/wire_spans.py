"""Spans as OTLP has them, to spans as we have them, with what is around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.errors import BadRequest, TooLarge
from tracer.otel.spans import SPAN_ID_BYTES, TRACE_ID_BYTES, Span, SpanEvent, SpanLink
from tracer.otel.wire import bytes_field

MAX_TIME = 2**63
"""Times from here on (the year 2262) have no place in the database."""

_SPAN_BYTES = 600
_EVENT_BYTES = 250
_REFUSAL_BYTES = 150
"""About what each takes up in memory besides what it says."""


class UndecodableTraces(BadRequest):
    """The body is no OTLP trace request."""


@dataclass(frozen=True)
class RefusedSpan:
    """A span that is not taken, by its place in the request."""

    index: int
    reason: str


@dataclass
class Decoded:
    """What a request holds."""

    spans: list[Span] = field(default_factory=list)
    refused: list[RefusedSpan] = field(default_factory=list)
    max_size: int | None = None
    """How much memory it may take up; None: any amount."""
    size: int = 0
    """About how much it takes up."""

    def grow(self, size: int) -> None:
        """Make room for so many bytes more.

        Raises:
            TooLarge: Then it takes up too much.
        """
        self.size += size
        if self.max_size is not None and self.size > self.max_size:
            raise TooLarge(
                "The spans take up too much memory, each with its attributes, its resource and its"
                " scope. Send them in several requests."
            )

    @property
    def count(self) -> int:
        """How many spans the request has, whether taken or refused."""
        return len(self.spans) + len(self.refused)


@dataclass(frozen=True)
class Around:
    """What the spans of one scope share: as values, and as the bytes that stand around each."""

    resource: dict[str, Any]
    scope: str
    scope_version: str
    before: bytes
    scope_before: bytes
    scope_after: bytes
    after: bytes
    size: int
    """How many bytes it adds to each span."""

    @classmethod
    def of_messages(cls, resource_spans: ResourceSpans, scope_spans: ScopeSpans) -> Around:
        """Return what the messages say, whose spans may be left out."""
        has_resource = resource_spans.HasField("resource")
        has_scope = scope_spans.HasField("scope")
        parts = (
            _field_of(1, resource_spans.resource) if has_resource else b"",
            _field_of(1, scope_spans.scope) if has_scope else b"",
            _text_field(3, scope_spans.schema_url),
            _text_field(3, resource_spans.schema_url),
        )
        return cls(
            attributes_of(resource_spans.resource.attributes),
            scope_spans.scope.name,
            scope_spans.scope.version,
            *parts,
            size=sum(map(len, parts)),
        )

    def body(self, span: bytes) -> bytes:
        """Return a serialized `ResourceSpans` with this span alone."""
        scope_spans = self.scope_before + bytes_field(2, span) + self.scope_after
        return self.before + bytes_field(2, scope_spans) + self.after


def _field_of(number: int, message: Resource | InstrumentationScope) -> bytes:
    return bytes_field(number, message.SerializeToString(deterministic=True))


def _text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode()) if text else b""


def take(decoded: Decoded, around: Around, span: WireSpan) -> None:
    """Add a span to what a request holds, or say why it is refused. Raises `TooLarge`."""
    trace_id, span_id, parent_span_id = span.trace_id, span.span_id, span.parent_span_id
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    reason = _why_not(trace_id, span_id, parent_span_id, max(start, end))
    if reason is not None:
        refuse(decoded, reason)
        return
    decoded.grow(
        _SPAN_BYTES
        + _EVENT_BYTES * (len(span.events) + len(span.links))
        + 2 * span.ByteSize()  # its content is in memory twice: as bytes, and as values
        + around.size
    )
    decoded.spans.append(span_of(around, span))


def span_of(around: Around, span: WireSpan) -> Span:
    """Return an OTLP span that was checked as a value."""
    parent_span_id = span.parent_span_id
    events, links, status = span.events, span.links, span.status
    return Span(
        span.trace_id,
        span.span_id,
        parent_span_id if any(parent_span_id) else None,
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        status.code,
        status.message,
        attributes_of(span.attributes),
        events_of(events) if events else (),
        _links(links) if links else (),
        around.resource,
        around.scope,
        around.scope_version,
        around.body(span.SerializeToString(deterministic=True)),
    )


def events_of(events: Any) -> tuple[SpanEvent, ...]:
    """Return the events of an OTLP span."""
    return tuple(
        SpanEvent(event.name, event.time_unix_nano, attributes_of(event.attributes))
        for event in events
    )


def _links(links: Any) -> tuple[SpanLink, ...]:
    return tuple(
        SpanLink(link.trace_id, link.span_id, attributes_of(link.attributes)) for link in links
    )


def refuse(decoded: Decoded, reason: str) -> None:
    """Refuse the next span of a request. Raises `TooLarge`."""
    decoded.grow(_REFUSAL_BYTES)
    decoded.refused.append(RefusedSpan(decoded.count, reason))


def refuse_all(decoded: Decoded, spans: Iterable[object]) -> None:
    """Refuse the spans of a resource or a scope that is none."""
    for _ in spans:
        refuse(decoded, "Its resource or its scope cannot be parsed.")


def _why_not(trace_id: bytes, span_id: bytes, parent_span_id: bytes, time: int) -> str | None:
    if len(trace_id) != TRACE_ID_BYTES or not any(trace_id):
        return f"Its trace id must be {TRACE_ID_BYTES} bytes that are not all zero."
    if len(span_id) != SPAN_ID_BYTES or not any(span_id):
        return f"Its span id must be {SPAN_ID_BYTES} bytes that are not all zero."
    if len(parent_span_id) not in (0, SPAN_ID_BYTES) and any(parent_span_id):
        return f"Its parent span id must be {SPAN_ID_BYTES} bytes."
    if time >= MAX_TIME:
        return "Its times must lie before the year 2262."
    return None


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return `KeyValue` messages as a dictionary; of several values of a key, the last."""
    # Most values are text or numbers that are not nothing: no need to ask which they are.
    return {
        pair.key: (value := pair.value).string_value or value.int_value or _value(value)
        for pair in pairs
    }


def _value(value: AnyValue) -> Any:
    # Recursive: the parser lets nothing through that nests deeper than a hundred messages.
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [_value(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return getattr(value, which)


def parsed_in_request(around: Around, span: bytes) -> WireSpan:
    """Return a span as it is parsed in a request: what nests too deeply for that is none.

    Raises:
        DecodeError: It cannot be parsed.
    """
    request = ExportTraceServiceRequest.FromString(bytes_field(1, around.body(span)))
    alone: WireSpan = request.resource_spans[0].scope_spans[0].spans[0]
    return alone
