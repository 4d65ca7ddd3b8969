"""Decode OTLP request bodies in JSON. A span that cannot be stored is rejected by itself."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import orjson
from google.protobuf import json_format
from google.protobuf.message import Error
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.protobuf_spans import Around
from tracer.otel.otlp.request_spans import (
    ByTrace,
    Decoded,
    UndecodableTraces,
    accept,
    parse_around,
    parse_span,
)
from tracer.text import most_json_values, storable, without_deep_values

_VALUE_BYTES = 100
"""About what a value takes up in memory besides what it says: as JSON, and in a message."""

_MAX_DEPTH = 256
"""Deeper values are read as null, so that they cost no other span. They are never part of a valid
span, whose values have at most 47 levels."""

_MAX_DIGITS = 400
"""Longer integers are read as infinite: Python refuses to read them as integers."""

_SURROGATES = re.compile("[\ud800-\udfff]")

Message = TypeVar("Message", ResourceSpans, ScopeSpans)

_NOT_OF_THAT_SHAPE = (
    *(json_format.Error, Error),
    *(ValueError, TypeError, OverflowError, RecursionError),
)
"""What making a message of JSON raises, and what serializing and parsing it does."""


def decode_json(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the spans of an OTLP/JSON request: hex ids, 64-bit integers as text or numbers.

    Fields that are not known are ignored.

    Args:
        body: The request.
        max_size: How much memory its spans may take, in bytes; None: any amount.

    Raises:
        UndecodableTraces: The body is not JSON, or not of that shape.
        TooLarge: Its spans take more.
    """
    decoded = Decoded(max_size)
    decoded.grow(_VALUE_BYTES * most_json_values(body))
    by_trace = ByTrace()
    for resource_spans in _objects(load_json(body, _MAX_DEPTH), "resourceSpans", "resource_spans"):
        scopes = _objects(resource_spans, "scopeSpans", "scope_spans")
        resource = _without_items(ResourceSpans(), resource_spans)
        for scope_spans in scopes:
            spans = _objects(scope_spans, "spans", "spans")
            if not spans:
                continue
            around = parse_around(decoded, resource, _without_items(ScopeSpans(), scope_spans))
            if around is None:
                decoded.refuse_all(spans)
            else:
                by_trace.add(around, _accepted(decoded, around, spans))
    by_trace.move_to(decoded)
    return decoded


def _accepted(
    decoded: Decoded, around: Around, spans: list[dict[str, Any]]
) -> Iterator[tuple[int, bytes, bytes]]:
    for fields in spans:
        try:
            span = parse_span(_wire_span(fields).SerializeToString())
        except _NOT_OF_THAT_SHAPE:
            decoded.refuse("It is not an OTLP span, or nests too deeply.")
        else:
            yield from accept(decoded, around, span)


def load_json(body: bytes, max_depth: int | None = None) -> Any:
    """Return the value of JSON text, with lone surrogates in stored form.

    Args:
        body: The text, in UTF-8, UTF-16 or UTF-32.
        max_depth: If orjson refuses the text, read arrays and objects deeper than this as null.

    Raises:
        UndecodableTraces: The text is not JSON, or nests too deeply.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        # Python's own parser takes lone surrogates, which JSON's grammar allows, and UTF-16.
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        if max_depth is not None:
            text = without_deep_values(text, max_depth)
        return _storable(json.loads(text, parse_int=_integer))
    except (ValueError, RecursionError) as error:
        raise UndecodableTraces("The body is no JSON, or nests too deeply.") from error


def _integer(digits: str) -> float:
    return int(digits) if len(digits) < _MAX_DIGITS else float(digits)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub(lambda match: storable(match[0]), value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value


def _objects(parent: Any, name: str, other_name: str) -> list[dict[str, Any]]:
    if not isinstance(parent, dict):
        raise UndecodableTraces("The body is no OTLP trace request: an object is missing in it.")
    items = parent.get(name, parent.get(other_name))
    if items is None:
        return []
    if not isinstance(items, list):
        raise UndecodableTraces(f"The body is no OTLP trace request: {name!r} is no array.")
    return items


def _without_items(message: Message, fields: dict[str, Any]) -> Message | None:
    """Return `message` with all fields but its scopes or spans; None if they are malformed."""
    alone = {name: value for name, value in fields.items() if name not in _ITEMS}
    try:
        json_format.ParseDict(alone, message, ignore_unknown_fields=True)
    except _NOT_OF_THAT_SHAPE:
        return None
    return message


_ITEMS = {"scopeSpans", "scope_spans", "spans"}
_IDS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}


def _wire_span(span: Any) -> WireSpan:
    """Return the message; ids are hex in OTLP's JSON, where other bytes are base64."""
    fields = _with_base64_ids(span)
    if isinstance(fields.get("links"), list):
        fields["links"] = [_with_base64_ids(link) for link in fields["links"]]
    message = WireSpan()
    json_format.ParseDict(fields, message, ignore_unknown_fields=True)
    return message


def _with_base64_ids(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise ValueError("A span and a link must be objects.")
    return {
        key: base64.b64encode(bytes.fromhex(value)).decode() if key in _IDS and value else value
        for key, value in fields.items()
    }
