"""The spans of one OTLP request: each checked by itself, then grouped by trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.errors import BadRequest, TooLarge
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.protobuf import bytes_field
from tracer.otel.otlp.protobuf_spans import MAX_TIME, Around
from tracer.otel.otlp.spans import SPAN_ID_BYTES, TRACE_ID_BYTES

_SPAN_BYTES = 600
_REFUSAL_BYTES = 150
"""About how much memory each takes, without its content."""


class UndecodableTraces(BadRequest):
    """The body is not an OTLP trace request."""


@dataclass(frozen=True)
class RefusedSpan:
    """A span that was rejected."""

    index: int
    """Its place in the request, from 0."""
    reason: str


@dataclass
class Decoded:
    """The spans of a request. Decoders add them in the order of the request."""

    max_size: int | None = None
    """How much memory they may take, in bytes; None: any amount."""
    size: int = 0
    """About how much they take, in bytes, also while they are decoded and read again."""
    count: int = 0
    """The number of spans in the request, accepted or rejected."""
    traces: list[TraceSpans] = field(default_factory=list)
    """The accepted spans, one item a trace, in the order of the traces' first spans."""
    places: list[int] = field(default_factory=list)
    """The place in the request of each accepted span, in the order of `traces`."""
    refused: list[RefusedSpan] = field(default_factory=list)

    def grow(self, size: int) -> None:
        """Count `size` more bytes of memory.

        Raises:
            TooLarge: The request exceeds `max_size`.
        """
        self.size += size
        if self.max_size is not None and self.size > self.max_size:
            raise TooLarge(
                "The spans take up too much memory, each with its attributes, its resource and its"
                " scope. Send them in several requests."
            )

    def grow_by_spans(self, count: int, around_size: int) -> None:
        """Count the memory that spans take, without their content.

        Args:
            count: How many they are.
            around_size: The bytes of their resource and scope. They count for each span, because
                readers return each span with both.

        Raises:
            TooLarge: The request exceeds `max_size`.
        """
        self.grow(count * (_SPAN_BYTES + around_size))

    def refuse(self, reason: str) -> None:
        """Reject the next span. Raises `TooLarge`."""
        self.grow(_REFUSAL_BYTES)
        self.refused.append(RefusedSpan(self.count, reason))
        self.count += 1

    def refuse_all(self, spans: Iterable[object]) -> None:
        """Reject the spans of a resource or scope that cannot be parsed. Raises `TooLarge`."""
        for _ in spans:
            self.refuse("Its resource or its scope cannot be parsed.")


class ByTrace:
    """The accepted items of a request whose messages are assembled, one message per trace."""

    def __init__(self, field: int = 1) -> None:
        """Hold no item.

        Args:
            field: The field of a stored message that holds them: 1 for spans, else `LOGS_FIELD`.
        """
        self._field = field
        self._parts: dict[bytes, list[bytes]] = {}
        self._places: dict[bytes, list[int]] = {}

    def add(self, around: Around, spans: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Add spans of one scope.

        Args:
            around: Their resource and scope.
            spans: The place, the trace id and the bytes of each.
        """
        by_trace: dict[bytes, list[bytes]] = {}
        for place, trace_id, span in spans:
            by_trace.setdefault(trace_id, []).append(span)
            self._places.setdefault(trace_id, []).append(place)
        for trace_id, some in by_trace.items():
            part = bytes_field(self._field, around.body(*some))
            self._parts.setdefault(trace_id, []).append(part)

    def move_to(self, decoded: Decoded) -> None:
        """Set the traces and the places of a request."""
        for trace_id, places in self._places.items():
            message = b"".join(self._parts.pop(trace_id))
            decoded.traces.append(TraceSpans(trace_id, message, len(places)))
            decoded.places += places


def accept(decoded: Decoded, around: Around, span: WireSpan) -> Iterator[tuple[int, bytes, bytes]]:
    """Check the next span of a request. Yield its place, its trace id and its bytes.

    Yields nothing if it is rejected.

    Raises:
        TooLarge: The request exceeds its bound on memory.
    """
    place, trace_id = decoded.count, span.trace_id
    reason = why_refused(span, trace_id)
    if reason is not None:
        decoded.refuse(reason)
        return
    content = span.SerializeToString(deterministic=True)
    decoded.grow(2 * len(content))
    decoded.grow_by_spans(1, around.size)
    decoded.count += 1
    yield place, trace_id, content


def why_refused(span: WireSpan, trace_id: bytes) -> str | None:
    """Return why a span cannot be stored; None if it can."""
    # Called for each span of each request, so each field is read once.
    span_id, parent_span_id = span.span_id, span.parent_span_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE_ID:
        return f"Its trace id must be {TRACE_ID_BYTES} bytes that are not all zero."
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN_ID:
        return f"Its span id must be {SPAN_ID_BYTES} bytes that are not all zero."
    if len(parent_span_id) not in (0, SPAN_ID_BYTES) and any(parent_span_id):
        return f"Its parent span id must be {SPAN_ID_BYTES} bytes."
    if span.start_time_unix_nano >= MAX_TIME or span.end_time_unix_nano >= MAX_TIME:
        return "Its times must lie before the year 2262."
    return None


_NO_TRACE_ID = bytes(TRACE_ID_BYTES)
_NO_SPAN_ID = bytes(SPAN_ID_BYTES)


def parse_around(
    decoded: Decoded, resource_spans: ResourceSpans | None, scope_spans: ScopeSpans | None
) -> Around | None:
    """Return the resource and the scope of spans that are parsed by themselves.

    Returns:
        None if one of the two is missing, or nests too deeply to be part of a request.

    Raises:
        TooLarge: The request exceeds its bound on memory.
    """
    if resource_spans is None or scope_spans is None:
        return None
    around = Around.of_messages(resource_spans, scope_spans)
    decoded.grow(around.size)  # bounds also the time for many scopes of a large resource
    try:
        ExportTraceServiceRequest.FromString(bytes_field(1, around.body()))
    except DecodeError:
        return None
    return around


def parse_span(span: bytes) -> WireSpan:
    """Return a span as it is parsed in a request: one that nests too deeply for that is rejected.

    Raises:
        google.protobuf.message.DecodeError: It cannot be parsed.
    """
    scope_spans = bytes_field(2, bytes_field(2, span))
    request = ExportTraceServiceRequest.FromString(bytes_field(1, scope_spans))
    alone: WireSpan = request.resource_spans[0].scope_spans[0].spans[0]
    return alone
