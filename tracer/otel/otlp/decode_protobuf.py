"""Decode OTLP requests in protobuf.

A span or log record that cannot be stored is rejected. The other items of the request are accepted.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from tracer.errors import TooLarge
from tracer.otel.otlp.protobuf import most_fields, parse
from tracer.otel.otlp.request_items import Decoded, UndecodableTraces, decode_items
from tracer.otel.otlp.signals import SPANS, Signal

MAX_FIELDS = 6_000_000
"""The largest estimated number of fields in a request. A field takes about 40 bytes of memory after
parsing, but may take only 2 bytes in the body."""


def decode_protobuf(body: bytes, signal: Signal = SPANS) -> Decoded:
    """Return the spans or log records of a serialized export request.

    A string that is not valid UTF-8 is accepted, with U+FFFD in place of each invalid part. If all
    spans are accepted and belong to one trace, `body` itself becomes the stored message, without a
    copy.

    Args:
        body: The serialized request.
        signal: Whether the request contains spans or log records.

    Raises:
        UndecodableTraces: The body is not an export request, or nests too deeply.
        TooLarge: The body has too many fields, or its resources are too large for its items.
    """
    if most_fields(body) > MAX_FIELDS:
        raise TooLarge(
            f"A request may have about {MAX_FIELDS} fields. Send the items in several requests."
        )
    try:
        request, body = parse(signal.request_type, body)
    except DecodeError as error:
        raise UndecodableTraces(
            f"The body is not an OTLP {signal.name} request: it is cut off, malformed, or nests "
            "more than a hundred levels deep. Send an OTLP export request as protocol buffers, or "
            "set the Content-Type application/json for JSON."
        ) from error
    groups = [
        (resource_items, scope_items, getattr(scope_items, signal.items))
        for resource_items in getattr(request, signal.resources)
        for scope_items in getattr(resource_items, signal.scopes)
    ]
    # A body with fields that OTLP does not define must not be stored as it is: stored messages
    # have other fields.
    is_storable = signal.resources == SPANS.resources and not len(UnknownFieldSet(request))
    return decode_items(groups, signal, body if is_storable else None)
