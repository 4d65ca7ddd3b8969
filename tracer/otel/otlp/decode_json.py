"""Decode OTLP requests in JSON.

A span or log record that cannot be stored is rejected. The other items of the request are accepted.
"""

from __future__ import annotations

import base64
import json
import re
from math import isfinite
from typing import Any

import orjson
from google.protobuf import json_format
from google.protobuf.message import Error
from pydantic.alias_generators import to_camel

from tracer.otel.otlp.request_items import Decoded, ScopeItems, UndecodableTraces, decode_items
from tracer.otel.otlp.signals import LOGS, SPANS, Signal
from tracer.records.spans import SPAN_ID_BYTES, TRACE_ID_BYTES
from tracer.text import check_json_values, storable, without_deep_values

_MAX_DEPTH = 256
"""The maximum nesting level. Deeper values are replaced by null, so that the other items of the
request can be accepted. A valid item has at most 47 levels."""

_MAX_MESSAGES = 97
"""The maximum nesting level of messages in an item, a resource or a scope. With the messages around
it, an item may have 100 levels, the limit of protobuf's parser."""

_MAX_DIGITS = 400
"""The maximum length of an integer. Longer integers are read as infinite, because Python refuses to
parse them."""

_SURROGATES = re.compile("[\ud800-\udfff]")

_NOT_OF_THAT_SHAPE = (
    *(json_format.Error, Error),
    *(ValueError, TypeError, OverflowError, RecursionError),
)
"""The exceptions that are raised if an item does not have the form of an OTLP item. They may occur
when the JSON is converted to a message, and when this message is serialized and parsed."""


def decode_json(body: bytes, signal: Signal = SPANS) -> Decoded:
    """Return the spans or log records of an OTLP/JSON request.

    In this format, ids are hexadecimal, and 64-bit integers are text or numbers. Unknown fields are
    ignored.

    Args:
        body: The request.
        signal: Whether the request contains spans or log records.

    Raises:
        UndecodableTraces: The body is not JSON, or is not an OTLP request.
        TooLarge: The body has too many values, or its resources are too large for its items.
    """
    check_json_values(body)
    groups: list[ScopeItems] = []
    for resource_items in _objects(load_json(body, _MAX_DEPTH), signal, signal.resources):
        scopes = _objects(resource_items, signal, signal.scopes)
        resource = _without_items(signal.resource_type(), resource_items)
        for scope_items in scopes:
            items = _objects(scope_items, signal, signal.items)
            scope = _without_items(signal.scope_type(), scope_items)
            if resource is None or scope is None:
                reasons = ["Its resource or its scope cannot be parsed."] * len(items)
                groups.append((None, None, reasons))
            else:
                groups.append((resource, scope, [_wire_item(signal, each) for each in items]))
    return decode_items(groups, signal)


def load_json(body: bytes, max_depth: int | None = None) -> Any:
    """Parse JSON text. Lone surrogates in strings are returned in stored form (`tracer.text`).

    Args:
        body: The text, in UTF-8, UTF-16 or UTF-32.
        max_depth: The nesting level below which arrays and objects are replaced by null, if orjson
            rejects the text. None: nothing is replaced.

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
        raise UndecodableTraces(
            "The body is not valid JSON, or nests too deeply. Send an OTLP export request as JSON, "
            "or set the Content-Type application/x-protobuf for protocol buffers."
        ) from error


def _integer(digits: str) -> float:
    return int(digits) if len(digits) < _MAX_DIGITS else float(digits)


def _storable(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")  # as protobuf writes it
    if isinstance(value, str):
        return _SURROGATES.sub(lambda match: storable(match[0]), value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value


def _objects(parent: Any, signal: Signal, name: str) -> list[dict[str, Any]]:
    if not isinstance(parent, dict):
        raise UndecodableTraces(
            f"The body is not an OTLP {signal.name} request: the value that contains "
            f"{to_camel(name)!r} must be an object."
        )
    items = parent.get(to_camel(name), parent.get(name))
    if items is None:
        return []
    if not isinstance(items, list):
        raise UndecodableTraces(
            f"The body is not an OTLP {signal.name} request: {to_camel(name)!r} must be an array."
        )
    return items


def _without_items(message: Any, fields: dict[str, Any]) -> Any:
    """Parse all fields of a resource or a scope into `message`, except its list of children.

    Returns None if the fields are malformed.
    """
    alone = {name: value for name, value in fields.items() if name not in _ITEMS}
    try:
        _parse(alone, message)
    except _NOT_OF_THAT_SHAPE:
        return None
    return message


_ITEMS = {
    spelled
    for signal in (SPANS, LOGS)
    for name in (signal.scopes, signal.items)
    for spelled in (name, to_camel(name))
}
_IDS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}


def _wire_item(signal: Signal, item: Any) -> Any:
    """Return an item as a protobuf message, or else the reason why it cannot be parsed.

    OTLP/JSON writes ids in hexadecimal. Protobuf's JSON format expects base64 for all bytes, so ids
    are converted first.
    """
    message = signal.item_type()
    try:
        fields = _with_base64_ids(item)
        if signal is SPANS and isinstance(fields.get("links"), list):
            fields["links"] = [
                link for each in fields["links"] if (link := _link_of(each)) is not None
            ]
        _parse(fields, message)
    except _NOT_OF_THAT_SHAPE:
        return (
            f"It lacks the form of an OTLP {signal.item} in JSON, or nests too deeply. Ids are "
            "hexadecimal: `traceId` has 32 digits, `spanId` 16."
        )
    return message


def _link_of(link: Any) -> dict[str, Any] | None:
    """Return a link with ids in base64; None if it is malformed: the span is more than its link."""
    try:
        fields = _with_base64_ids(link)
        _parse(fields, SPANS.item_type().links.add())
    except _NOT_OF_THAT_SHAPE:
        return None
    return fields


def _parse(fields: dict[str, Any], message: Any) -> None:
    json_format.ParseDict(
        fields, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_MESSAGES
    )


def _with_base64_ids(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise ValueError("Each span, log record and span link must be a JSON object.")
    return {
        key: base64.b64encode(_id_of(value)).decode() if key in _IDS and value else value
        for key, value in fields.items()
    }


def _id_of(value: Any) -> bytes:
    """Return the bytes of an id in hexadecimal, as OTLP/JSON requires, or in base64.

    Protobuf's own JSON format writes base64, and some exporters use it. Other values than 8 or 16
    bytes are rejected.
    """
    if isinstance(value, list):  # bytes as a list of numbers
        return bytes(value)
    try:
        return bytes.fromhex(value)
    except ValueError:
        found = base64.b64decode(value, altchars=b"-_" if {"-", "_"} & {*value} else None)
        if len(found) not in (SPAN_ID_BYTES, TRACE_ID_BYTES):
            raise
        return found
