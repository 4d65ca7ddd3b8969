"""The spans or log records of one OTLP request: check each of them, and group them by trace."""

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
"""The estimated memory in bytes that a rejected item takes without its content."""


class UndecodableTraces(BadRequest):
    """The body is not an OTLP request."""


@dataclass(frozen=True)
class RefusedSpan:
    """A span or a log record that was rejected."""

    index: int
    """The index of the item in the request, from 0."""
    reason: str


@dataclass
class Decoded:
    """The result of decoding a request: accepted items by trace, and rejected items.

    Decoders add items in the order of the request.
    """

    max_size: int | None = None
    """The maximum memory that the items may use, in bytes; None: unlimited."""
    size: int = 0
    """The estimated memory that the items use, in bytes. It includes the memory that is needed to
    decode them, and to read them again later."""
    count: int = 0
    """The number of items in the request, accepted or rejected."""
    traces: list[TraceSpans] = field(default_factory=list)
    """The accepted items: one message for each trace, in the order of the traces' first items."""
    places: list[int] = field(default_factory=list)
    """The index in the request of each accepted item, in the order of `traces`."""
    refused: list[RefusedSpan] = field(default_factory=list)

    def grow(self, size: int) -> None:
        """Add `size` bytes to the memory that the request uses.

        Raises:
            TooLarge: The request uses more memory than `max_size`.
        """
        self.size += size
        if self.max_size is not None and self.size > self.max_size:
            raise TooLarge(
                "The request takes up too much memory: each span or log record counts with its"
                " attributes, its resource and its scope. Send the items in several requests."
            )

    def grow_by_items(self, count: int, envelope_size: int) -> None:
        """Add the memory that a number of items use, without their content.

        Args:
            count: The number of items.
            envelope_size: The bytes of the items' resource and scope. They count once for each
                item, because readers return each item with both.

        Raises:
            TooLarge: The request uses more memory than `max_size`.
        """
        self.grow(count * (_ITEM_BYTES + envelope_size))

    def refuse(self, reason: str) -> None:
        """Reject the next item of the request.

        Raises:
            TooLarge: The request uses more memory than `max_size`.
        """
        self.grow(_REFUSAL_BYTES)
        self.refused.append(RefusedSpan(self.count, reason))
        self.count += 1

    def refuse_all(self, items: Iterable[object]) -> None:
        """Reject all items of a resource or scope that cannot be parsed.

        Raises:
            TooLarge: The request uses more memory than `max_size`.
        """
        for _ in items:
            self.refuse("Its resource or its scope cannot be parsed.")


class ByTrace:
    """Groups the accepted items of a request by trace, into one message per trace."""

    def __init__(self, signal: Signal) -> None:
        """Create an empty collection of items of one signal."""
        self._field = signal.stored_field
        self._parts: dict[bytes, list[bytes]] = {}
        self._places: dict[bytes, list[int]] = {}

    def add(self, envelope: Envelope, items: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Add items of one scope.

        Args:
            envelope: The resource and scope of the items.
            items: For each item, its index in the request, its trace id and its bytes.
        """
        by_trace: dict[bytes, list[bytes]] = {}
        for place, trace_id, item in items:
            by_trace.setdefault(trace_id, []).append(item)
            self._places.setdefault(trace_id, []).append(place)
        for trace_id, some in by_trace.items():
            part = bytes_field(self._field, envelope.body(*some))
            self._parts.setdefault(trace_id, []).append(part)

    def move_to(self, decoded: Decoded) -> None:
        """Move the collected messages, and the indexes of their items, to `decoded`."""
        for trace_id, places in self._places.items():
            message = b"".join(self._parts.pop(trace_id))
            decoded.traces.append(TraceSpans(trace_id, message, len(places)))
            decoded.places += places


def accept(
    decoded: Decoded, signal: Signal, envelope: Envelope, item: Any
) -> Iterator[tuple[int, bytes, bytes]]:
    """Check the next item of a request.

    Yields:
        The item's index in the request, its trace id and its bytes. Nothing if the item is
        rejected.

    Raises:
        TooLarge: The request uses more memory than allowed.
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
    """Return the id of the run for an item without a trace id; None to reject the item.

    Args:
        signal: The item's signal.
        envelope: The item's resource and scope.
        item: The item.
        reason: Why the item was rejected so far. Only if the reason is `NO_TRACE` can the item be
            stored in the run of its session.
    """
    if reason is not NO_TRACE or signal.session_of is None:
        return None
    session = signal.session_of(log_of(envelope, item))
    return None if session is None else session_run_id(session)


def parse_envelope(
    decoded: Decoded, signal: Signal, resource_items: Any, scope_items: Any
) -> Envelope | None:
    """Return the envelope of a resource and a scope that were parsed without their items.

    Returns:
        None if the resource or the scope is None, or if it nests too deeply for a request.

    Raises:
        TooLarge: The request uses more memory than allowed.
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
    """Parse one item with the same limits as inside a whole request.

    Protobuf limits the nesting of a message. An item that exceeds the limit inside a request must
    also be rejected here.

    Raises:
        google.protobuf.message.DecodeError: The item cannot be parsed.
    """
    scope_items = bytes_field(2, bytes_field(2, item))
    request = signal.request_type.FromString(bytes_field(1, scope_items))
    [resource_items] = getattr(request, signal.resources)
    [scope_items] = getattr(resource_items, signal.scopes)
    [alone] = getattr(scope_items, signal.items)
    return alone
