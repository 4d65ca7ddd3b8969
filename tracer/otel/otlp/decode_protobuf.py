"""Decode OTLP requests in protobuf.

A span or log record that cannot be stored is rejected. The other items of the request are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.protobuf import Malformed, bytes_field, bytes_fields, most_fields
from tracer.otel.otlp.protobuf_spans import Envelope
from tracer.otel.otlp.request_items import (
    ByTrace,
    Decoded,
    UndecodableTraces,
    accept,
    parse_envelope,
    parse_item,
    run_of_session,
)
from tracer.otel.otlp.signals import SPANS, Signal

_FIELD_BYTES = 40
"""The estimated memory in bytes that a field takes without its content."""


def decode_protobuf(body: bytes, max_size: int | None = None, signal: Signal = SPANS) -> Decoded:
    """Return the spans or log records of a serialized export request.

    If all spans are accepted and belong to one trace, `body` itself becomes the stored message,
    without a copy.

    Args:
        body: The serialized request.
        max_size: The largest amount of memory, in bytes, that the items may use; None: unlimited.
        signal: Whether the request contains spans or log records.

    Raises:
        UndecodableTraces: The body is not an export request. A single malformed item does not raise
            an error. It is rejected.
        TooLarge: The items use more memory than `max_size`.
    """
    decoded = Decoded(max_size)
    decoded.grow(_FIELD_BYTES * most_fields(body))
    try:
        request = signal.request_type.FromString(body)
    except DecodeError:
        return _decode_by_parts(body, decoded, signal)
    # An item is in memory twice: as bytes, and decoded.
    decoded.grow(2 * len(body))
    trace_ids = _check(request, decoded, signal)
    distinct = set(trace_ids)
    # An unknown field of the request must not be stored: stored messages use field 2 for log
    # records.
    if len(distinct) == 1 and not decoded.refused and not len(UnknownFieldSet(request)):
        message = _stored_message(body, signal)
        decoded.traces.append(TraceSpans(distinct.pop(), message, decoded.count))
        decoded.places += range(decoded.count)
    elif distinct:
        _assemble(request, decoded, trace_ids, signal)
    return decoded


def _scopes_of(request: Any, signal: Signal) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the resource, the scope and the items of each scope that has items."""
    for resource_items in getattr(request, signal.resources):
        for scope_items in getattr(resource_items, signal.scopes):
            if items := getattr(scope_items, signal.items):
                yield resource_items, scope_items, items


def _check(request: Any, decoded: Decoded, signal: Signal) -> list[bytes]:
    """Check all items of a request. Return the trace ids of the accepted items, in order."""
    trace_ids: list[bytes] = []
    why_refused = signal.why_refused
    for resource_items, scope_items, items in _scopes_of(request, signal):
        accepted_before = len(trace_ids)
        envelope: Envelope | None = None
        for item in items:
            trace_id = item.trace_id
            reason = why_refused(item, trace_id)
            if reason is not None and signal.session_of is not None:
                envelope = envelope or Envelope.of_messages(resource_items, scope_items)
                session_run = run_of_session(signal, envelope, item, reason)
                if session_run is not None:
                    trace_id, reason = session_run, None
            if reason is None:
                trace_ids.append(trace_id)
                decoded.count += 1
            else:
                decoded.refuse(reason)
        envelope_size = (
            resource_items.resource.ByteSize()
            + scope_items.scope.ByteSize()
            + len(resource_items.schema_url)
            + len(scope_items.schema_url)
        )
        decoded.grow(envelope_size)
        decoded.grow_by_items(len(trace_ids) - accepted_before, envelope_size)
    return trace_ids


def _stored_message(body: bytes, signal: Signal) -> bytes:
    if signal.stored_field == 1:
        return body
    return b"".join([bytes_field(signal.stored_field, part) for part in _parts(body, 1)])


def _assemble(request: Any, decoded: Decoded, trace_ids: list[bytes], signal: Signal) -> None:
    """Group the accepted items of a request by trace, and add the groups to `decoded`."""
    by_trace = ByTrace(signal)
    refused = {each.index for each in decoded.refused}
    accepted_ids = iter(trace_ids)
    place = 0
    for resource_items, scope_items, items in _scopes_of(request, signal):
        accepted = []
        for item in items:
            if place not in refused:
                content = item.SerializeToString(deterministic=True)
                accepted.append((place, next(accepted_ids), content))
            place += 1
        if accepted:
            by_trace.add(Envelope.of_messages(resource_items, scope_items), accepted)
    by_trace.move_to(decoded)


def _decode_by_parts(body: bytes, decoded: Decoded, signal: Signal) -> Decoded:
    """Decode a request that protobuf cannot parse as a whole, item by item."""
    by_trace = ByTrace(signal)
    try:
        for resource_items in _parts(body, 1):
            resource = _without_items(signal.resource_type, resource_items)
            for scope_items in _parts(resource_items, 2):
                items = list(_parts(scope_items, 2))
                if not items:
                    continue
                scope = _without_items(signal.scope_type, scope_items)
                envelope = parse_envelope(decoded, signal, resource, scope)
                if envelope is None:
                    decoded.refuse_all(items)
                else:
                    by_trace.add(envelope, _accepted(decoded, signal, envelope, items))
    except Malformed as error:
        raise UndecodableTraces(
            f"The body is not an OTLP {signal.name} request. {error} Send an OTLP export request "
            "as protocol buffers, or set the Content-Type application/json for JSON."
        ) from error
    by_trace.move_to(decoded)
    return decoded


def _accepted(
    decoded: Decoded, signal: Signal, envelope: Envelope, items: list[bytes]
) -> Iterator[tuple[int, bytes, bytes]]:
    for content in items:
        try:
            item = parse_item(signal, content)
        except DecodeError as error:
            decoded.refuse(_reason_of(error))
        else:
            yield from accept(decoded, signal, envelope, item)


def _parts(message: bytes, number: int) -> Iterator[bytes]:
    return (content for each, content in bytes_fields(message) if each == number)


def _without_items(kind: Any, message: bytes) -> Any:
    """Parse all fields of a resource or a scope, except its list of children.

    Returns None if the fields are malformed.
    """
    fields = [bytes_field(number, each) for number, each in bytes_fields(message) if number != 2]
    try:
        return kind.FromString(b"".join(fields))
    except DecodeError:
        return None


def _reason_of(error: DecodeError) -> str:
    if "UTF-8" in str(error):
        return "A string in it is not valid UTF-8."
    return "It cannot be parsed: it is cut off, malformed, or nests too deeply."
