"""Convert OTLP span messages to `Span` objects with their resource and scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.protobuf import Group
from tracer.records.spans import Span, SpanEvent, SpanLink

MAX_TIME = 2**63
"""The first time that the database cannot store, in nanoseconds since 1970. It is in the year
2262."""


@dataclass(frozen=True)
class Envelope:
    """The resource and the scope that several spans or log records share.

    An envelope contains the values of the resource and the scope. It also contains the fields that
    surround an item in a serialized message.
    """

    resource: dict[str, Any]
    scope: str
    scope_version: str
    resource_fields: Mapping[str, bytes]
    """The fields of a `Group` with the resource."""
    scope_fields: Mapping[str, bytes]

    @classmethod
    def of_messages(
        cls, resource_spans: ResourceSpans | ResourceLogs, scope_spans: ScopeSpans | ScopeLogs
    ) -> Envelope:
        """Create an envelope from a message of a resource and a message of a scope.

        Their spans or log records are ignored.
        """
        return cls(
            attributes_of(resource_spans.resource.attributes),
            scope_spans.scope.name,
            scope_spans.scope.version,
            _fields(resource_spans, "resource"),
            _fields(scope_spans, "scope"),
        )

    def body(self, *spans: bytes) -> bytes:
        """Return a serialized `ResourceSpans` or `ResourceLogs` with the given serialized items."""
        scope_spans = Group(items=spans, **self.scope_fields).SerializeToString()
        content: bytes = Group(items=[scope_spans], **self.resource_fields).SerializeToString()
        return content


def _fields(message: Any, head: str) -> dict[str, bytes]:
    """Return the fields of a `Group`, without its items, that is a resource or a scope."""
    fields = {}
    if message.HasField(head):
        fields["head"] = getattr(message, head).SerializeToString(deterministic=True)
    if message.schema_url:
        fields["schema_url"] = message.schema_url.encode()
    return fields


def scopes_of(request: Any) -> Iterator[tuple[ResourceSpans, ScopeSpans]]:
    """Yield the resource and the scope of each scope of a stored message that has spans."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            if scope_spans.spans:
                yield resource_spans, scope_spans


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
