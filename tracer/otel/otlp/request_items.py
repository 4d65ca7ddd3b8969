"""The spans or log records of one OTLP request: check each of them, and group them by trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracer.errors import BadRequest, TooLarge
from tracer.otel.otlp.logs import log_of, session_run_id
from tracer.otel.otlp.protobuf import StoredParts
from tracer.otel.otlp.protobuf_spans import Envelope
from tracer.otel.otlp.signals import NO_TRACE, Signal
from tracer.records.spans import TraceSpans

MAX_COPIED_BYTES = 2**28
"""The largest size of the resources and scopes of a request, each counted once for every item: a
request is split by trace, and readers return each item with both. A gzipped body of 64 kB could
otherwise become a terabyte."""


class UndecodableTraces(BadRequest):
    """The body is not an OTLP request."""


@dataclass(frozen=True)
class RefusedSpan:
    """A span or a log record that was rejected."""

    index: int
    """The index of the item in the request, from 0."""
    reason: str


ScopeItems = tuple[Any, Any, Sequence[Any]]
"""A resource, a scope and its items, as messages. A text in place of an item is the reason why the
item cannot be parsed. If all items are texts, the resource and the scope may be None."""


@dataclass
class Decoded:
    """The result of decoding a request: accepted items by trace, and rejected items."""

    count: int = 0
    """The number of items in the request, accepted or rejected."""
    traces: list[TraceSpans] = field(default_factory=list)
    """The accepted items: one message for each trace, in the order of the traces' first items."""
    places: list[int] = field(default_factory=list)
    """The index in the request of each accepted item, in the order of `traces`."""
    refused: list[RefusedSpan] = field(default_factory=list)


def decode_items(
    groups: Sequence[ScopeItems], signal: Signal, body: bytes | None = None
) -> Decoded:
    """Check each item of a request, and group the accepted items by trace.

    Args:
        groups: The items of the request, in order.
        signal: The signal of the items.
        body: The request, if it may become the stored message of a trace that contains all items.

    Raises:
        TooLarge: The resources and scopes are too large for so many items.
    """
    decoded = Decoded()
    trace_ids = _check(groups, decoded, signal)
    decoded.count = len(trace_ids)
    distinct = set(trace_ids)
    if body is not None and len(distinct) == 1 and not decoded.refused:
        trace_id = distinct.pop()
        assert trace_id is not None
        decoded.traces.append(TraceSpans(trace_id, body, decoded.count))
        decoded.places += range(decoded.count)
    else:
        _assemble(groups, decoded, signal, trace_ids)
    return decoded


def _check(groups: Iterable[ScopeItems], decoded: Decoded, signal: Signal) -> list[bytes | None]:
    """Return the trace id of each item in order; None for the rejected items."""
    trace_ids: list[bytes | None] = []
    copied = 0
    why_refused = signal.why_refused
    for resource_items, scope_items, items in groups:
        envelope: Envelope | None = None
        for item in items:
            trace_id: bytes | None = None
            reason: str | None = item
            if not isinstance(item, str):
                trace_id = item.trace_id
                reason = why_refused(item, trace_id)
                if reason is NO_TRACE and signal.session_of is not None:
                    envelope = envelope or Envelope.of_messages(resource_items, scope_items)
                    session = signal.session_of(log_of(envelope, item))
                    if session is not None:
                        trace_id, reason = session_run_id(session), None
            if reason is not None:
                decoded.refused.append(RefusedSpan(len(trace_ids), reason))
                trace_id = None
            trace_ids.append(trace_id)
        if resource_items is not None and scope_items is not None:
            size = resource_items.resource.ByteSize() + scope_items.scope.ByteSize()
            size += len(resource_items.schema_url) + len(scope_items.schema_url)
            copied += len(items) * size
            if copied > MAX_COPIED_BYTES:
                raise TooLarge(
                    "The resources and scopes of this request are too large: each span or log"
                    " record is stored with both. Send the items in several requests."
                )
    return trace_ids


def _assemble(
    groups: Iterable[ScopeItems],
    decoded: Decoded,
    signal: Signal,
    trace_ids: Sequence[bytes | None],
) -> None:
    """Add one message for each trace to `decoded`, with the trace's items."""
    parts: dict[bytes, list[bytes]] = {}
    places: dict[bytes, list[int]] = {}
    place = 0
    for resource_items, scope_items, items in groups:
        by_trace: dict[bytes, list[bytes]] = {}
        for item in items:
            if (trace_id := trace_ids[place]) is not None:
                content = item.SerializeToString(deterministic=True)
                by_trace.setdefault(trace_id, []).append(content)
                places.setdefault(trace_id, []).append(place)
            place += 1
        if by_trace:
            envelope = Envelope.of_messages(resource_items, scope_items)
            for trace_id, some in by_trace.items():
                parts.setdefault(trace_id, []).append(envelope.body(*some))
    for trace_id, of_trace in places.items():
        message = StoredParts(**{signal.resources: parts.pop(trace_id)}).SerializeToString()
        decoded.traces.append(TraceSpans(trace_id, message, len(of_trace)))
        decoded.places += of_trace
