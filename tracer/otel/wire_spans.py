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

    @classmethod
    def of_messages(cls, resource_spans: ResourceSpans, scope_spans: ScopeSpans) -> Around:
        """Return what the messages say, whose spans may be left out."""
        has_resource = resource_spans.HasField("resource")
        has_scope = scope_spans.HasField("scope")
        return cls(
            resource=_attributes(resource_spans.resource.attributes),
            scope=scope_spans.scope.name,
            scope_version=scope_spans.scope.version,
            before=_field_of(1, resource_spans.resource) if has_resource else b"",
            scope_before=_field_of(1, scope_spans.scope) if has_scope else b"",
            scope_after=_text_field(3, scope_spans.schema_url),
            after=_text_field(3, resource_spans.schema_url),
        )

    @property
    def size(self) -> int:
        """How many bytes it adds to each span."""
        return sum(map(len, (self.before, self.scope_before, self.scope_after, self.after)))

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
    reason = _why_not(span)
    if reason is not None:
        refuse(decoded, reason)
        return
    alone = span.SerializeToString(deterministic=True)
    events = _EVENT_BYTES * (len(span.events) + len(span.links))
    # What it says is there twice: as it came, and as values.
    decoded.grow(_SPAN_BYTES + events + 2 * len(alone) + around.size)
    decoded.spans.append(
        Span(
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_span_id=span.parent_span_id if any(span.parent_span_id) else None,
            name=span.name,
            kind=span.kind,
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            status_code=span.status.code,
            status_message=span.status.message,
            attributes=_attributes(span.attributes),
            events=tuple(
                SpanEvent(event.name, event.time_unix_nano, _attributes(event.attributes))
                for event in span.events
            ),
            links=tuple(
                SpanLink(link.trace_id, link.span_id, _attributes(link.attributes))
                for link in span.links
            ),
            resource=around.resource,
            scope=around.scope,
            scope_version=around.scope_version,
            body=around.body(alone),
        )
    )


def refuse(decoded: Decoded, reason: str) -> None:
    """Refuse the next span of a request. Raises `TooLarge`."""
    decoded.grow(_REFUSAL_BYTES)
    decoded.refused.append(RefusedSpan(decoded.count, reason))


def refuse_all(decoded: Decoded, spans: Iterable[object]) -> None:
    """Refuse the spans of a resource or a scope that is none."""
    for _ in spans:
        refuse(decoded, "Its resource or its scope cannot be parsed.")


def _why_not(span: WireSpan) -> str | None:
    if len(span.trace_id) != TRACE_ID_BYTES or not any(span.trace_id):
        return f"Its trace id must be {TRACE_ID_BYTES} bytes that are not all zero."
    if len(span.span_id) != SPAN_ID_BYTES or not any(span.span_id):
        return f"Its span id must be {SPAN_ID_BYTES} bytes that are not all zero."
    if any(span.parent_span_id) and len(span.parent_span_id) != SPAN_ID_BYTES:
        return f"Its parent span id must be {SPAN_ID_BYTES} bytes."
    if max(span.start_time_unix_nano, span.end_time_unix_nano) >= MAX_TIME:
        return "Its times must lie before the year 2262."
    return None


def _attributes(pairs: Any) -> dict[str, Any]:
    # Most values are text that is not empty: no need to ask which they are.
    return {pair.key: pair.value.string_value or _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    # Recursive: the parser lets nothing through that nests deeper than a hundred messages.
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [_value(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, which)


def parsed_in_request(around: Around, span: bytes) -> WireSpan:
    """Return a span as it is parsed in a request: what nests too deeply for that is none.

    Raises:
        DecodeError: It cannot be parsed.
    """
    request = ExportTraceServiceRequest.FromString(bytes_field(1, around.body(span)))
    alone: WireSpan = request.resource_spans[0].scope_spans[0].spans[0]
    return alone
