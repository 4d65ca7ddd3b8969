"""The items of one OTLP request: each checked by itself, then grouped by trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from tracer.errors import BadRequest, TooLarge
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.logs import log_of, session_run_id
from tracer.otel.otlp.protobuf import bytes_field
from tracer.otel.otlp.protobuf_spans import Envelope
from tracer.otel.otlp.signals import NO_TRACE, Signal

_ITEM_BYTES = 600
_REFUSAL_BYTES = 150
"""About how much memory each takes, without its content."""


class UndecodableTraces(BadRequest):
    """The body is not an OTLP request."""


@dataclass(frozen=True)
class RefusedSpan:
    """A span or a log record that was rejected."""

    index: int
    """Its place in the request, from 0."""
    reason: str


@dataclass
class Decoded:
    """The spans or log records of a request. Decoders add them in the order of the request."""

    max_size: int | None = None
    """How much memory they may take, in bytes; None: any amount."""
    size: int = 0
    """About how much they take, in bytes, also while they are decoded and read again."""
    count: int = 0
    """The number of items in the request, accepted or rejected."""
    traces: list[TraceSpans] = field(default_factory=list)
    """The accepted items, one message a trace, in the order of the traces' first items."""
    places: list[int] = field(default_factory=list)
    """The place in the request of each accepted item, in the order of `traces`."""
    refused: list[RefusedSpan] = field(default_factory=list)

    def grow(self, size: int) -> None:
        """Count `size` more bytes of memory.

        Raises:
            TooLarge: The request exceeds `max_size`.
        """
        self.size += size
        if self.max_size is not None and self.size > self.max_size:
            raise TooLarge(
                "The request takes up too much memory: each span or log record counts with its"
                " attributes, its resource and its scope. Send them in several requests."
            )

    def grow_by_items(self, count: int, envelope_size: int) -> None:
        """Count the memory that items take, without their content.

        Args:
            count: The number of items.
            envelope_size: The bytes of the items' resource and scope. These bytes count for each
                item, because readers return each item with both.

        Raises:
            TooLarge: The request exceeds `max_size`.
        """
        self.grow(count * (_ITEM_BYTES + envelope_size))

    def refuse(self, reason: str) -> None:
        """Reject the next item. Raises `TooLarge`."""
        self.grow(_REFUSAL_BYTES)
        self.refused.append(RefusedSpan(self.count, reason))
        self.count += 1

    def refuse_all(self, items: Iterable[object]) -> None:
        """Reject the items of a resource or scope that cannot be parsed. Raises `TooLarge`."""
        for _ in items:
            self.refuse("Its resource or its scope cannot be parsed.")


class ByTrace:
    """The accepted items of a request whose messages are assembled, one message per trace."""

    def __init__(self, signal: Signal) -> None:
        """Create an empty collection of items of one signal."""
        self._field = signal.stored_field
        self._parts: dict[bytes, list[bytes]] = {}
        self._places: dict[bytes, list[int]] = {}

    def add(self, envelope: Envelope, items: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Add items of one scope.

        Args:
            envelope: Their resource and scope.
            items: The place, the trace id and the bytes of each.
        """
        by_trace: dict[bytes, list[bytes]] = {}
        for place, trace_id, item in items:
            by_trace.setdefault(trace_id, []).append(item)
            self._places.setdefault(trace_id, []).append(place)
        for trace_id, some in by_trace.items():
            part = bytes_field(self._field, envelope.body(*some))
            self._parts.setdefault(trace_id, []).append(part)

    def move_to(self, decoded: Decoded) -> None:
        """Add the collected traces, and the places of their items, to a decoded request."""
        for trace_id, places in self._places.items():
            message = b"".join(self._parts.pop(trace_id))
            decoded.traces.append(TraceSpans(trace_id, message, len(places)))
            decoded.places += places


def accept(
    decoded: Decoded, signal: Signal, envelope: Envelope, item: Any
) -> Iterator[tuple[int, bytes, bytes]]:
    """Check the next item of a request. Yield its place, its trace id and its bytes.

    Yields nothing if it is rejected.

    Raises:
        TooLarge: The request exceeds its bound on memory.
    """
    place, trace_id = decoded.count, item.trace_id
    reason = signal.why_refused(item, trace_id)
    if reason is not None:
        run_trace_id = run_of_session(signal, envelope, item, reason)
        if run_trace_id is None:
            decoded.refuse(reason)
            return
        trace_id = run_trace_id
    content = item.SerializeToString(deterministic=True)
    decoded.grow(2 * len(content))
    decoded.grow_by_items(1, envelope.size)
    decoded.count += 1
    yield place, trace_id, content


def run_of_session(signal: Signal, envelope: Envelope, item: Any, reason: str) -> bytes | None:
    """Return the id of the run for an item that has no trace id; None if the item is rejected.

    Args:
        signal: The item's signal.
        envelope: The item's resource and scope.
        item: The item.
        reason: Why the item belongs to no trace.
    """
    if reason is not NO_TRACE or signal.session_of is None:
        return None
    session = signal.session_of(log_of(envelope, item))
    return None if session is None else session_run_id(session)


def parse_envelope(
    decoded: Decoded, signal: Signal, resource_items: Any, scope_items: Any
) -> Envelope | None:
    """Return the resource and the scope of items that are parsed by themselves.

    Returns:
        None if one of the two is missing, or nests too deeply to be part of a request.

    Raises:
        TooLarge: The request exceeds its bound on memory.
    """
    if resource_items is None or scope_items is None:
        return None
    envelope = Envelope.of_messages(resource_items, scope_items)
    decoded.grow(envelope.size)  # bounds also the time for many scopes of a large resource
    try:
        signal.request_type.FromString(bytes_field(1, envelope.body()))
    except DecodeError:
        return None
    return envelope


def parse_item(signal: Signal, item: bytes) -> Any:
    """Return an item as it is parsed in a request: one that nests too deeply for that is rejected.

    Raises:
        google.protobuf.message.DecodeError: It cannot be parsed.
    """
    scope_items = bytes_field(2, bytes_field(2, item))
    request = signal.request_type.FromString(bytes_field(1, scope_items))
    [resource_items] = getattr(request, signal.resources)
    [scope_items] = getattr(resource_items, signal.scopes)
    [alone] = getattr(scope_items, signal.items)
    return alone
