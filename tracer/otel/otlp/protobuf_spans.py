"""Convert OTLP span messages to `Span` objects with their resource and scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, TracesData
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.protobuf import bytes_field
from tracer.otel.otlp.spans import Span, SpanEvent, SpanLink

MAX_TIME = 2**63
"""The first time that the database cannot store, in nanoseconds since 1970. It is in the year
2262."""


@dataclass(frozen=True)
class Envelope:
    """The resource and the scope that several spans or log records share.

    An envelope contains the values of the resource and the scope. It also contains the bytes that
    surround an item in a serialized message.
    """

    resource: dict[str, Any]
    scope: str
    scope_version: str
    before: bytes
    scope_before: bytes
    scope_after: bytes
    after: bytes
    size: int
    """The number of bytes that the resource and the scope add to each item."""

    @classmethod
    def of_messages(
        cls, resource_spans: ResourceSpans | ResourceLogs, scope_spans: ScopeSpans | ScopeLogs
    ) -> Envelope:
        """Create an envelope from a message of a resource and a message of a scope.

        Their spans or log records are ignored.
        """
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

    def body(self, *spans: bytes) -> bytes:
        """Return a serialized `ResourceSpans` or `ResourceLogs` with the given serialized items."""
        content = b"".join([bytes_field(2, span) for span in spans])
        scope_spans = self.scope_before + content + self.scope_after
        return self.before + bytes_field(2, scope_spans) + self.after


def scopes_of(
    request: TracesData | ExportTraceServiceRequest,
) -> Iterator[tuple[ResourceSpans, ScopeSpans]]:
    """Yield the resource and the scope of each scope that has spans."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            if scope_spans.spans:
                yield resource_spans, scope_spans


def _field_of(number: int, message: Resource | InstrumentationScope) -> bytes:
    return bytes_field(number, message.SerializeToString(deterministic=True))


def _text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode()) if text else b""


def span_of(envelope: Envelope, span: WireSpan) -> Span:
    """Convert an OTLP span, which must be valid, to a `Span`."""
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
        envelope.resource,
        envelope.scope,
        envelope.scope_version,
        envelope.body(span.SerializeToString(deterministic=True)),
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


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return `KeyValue` messages as a dictionary. If a key is repeated, the last value is used."""
    # Most values are non-empty texts or non-zero numbers. `value_of` handles the others.
    return {
        pair.key: (value := pair.value).string_value or value.int_value or value_of(value)
        for pair in pairs
    }


def value_of(value: AnyValue) -> Any:
    """Return the value of an `AnyValue` message; None if it is empty."""
    # Recursion is safe: the parser rejects messages that nest more than a hundred levels deep.
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return getattr(value, which)
