"""Decode OTLP requests in JSON or protobuf, and group their spans and log records by trace."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isfinite
from typing import Any

import orjson
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Error
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from pydantic.alias_generators import to_camel

from tracer.errors import BadRequest, TooLarge
from tracer.otel.otlp.blocks import BLOCK_BYTES, weight
from tracer.otel.otlp.spans import (
    Envelope,
    StoredMessage,
    StoredParts,
    log_of,
    logs_in,
    most_fields,
    parse,
    session_run_id,
)
from tracer.records.spans import SPAN_ID_BYTES, TRACE_ID_BYTES, LogRecord, TraceSpans
from tracer.text import check_json_values, storable, without_deep_values

# --- The signals of OTLP that Tracer stores: spans and log records.
#
# The requests of both signals have the same structure, so the decoders work for both.

NO_TRACE = f"Its trace id must be {TRACE_ID_BYTES} bytes that are not all zero."
"""The reason if a span or log record is rejected because it has no trace id."""
NO_SESSION = "It has no trace id, and names no session of a known agent program."
"""The reason if a log record has neither a trace nor a session."""

_NO_TRACE_ID = bytes(TRACE_ID_BYTES)
_NO_SPAN_ID = bytes(SPAN_ID_BYTES)

SessionOf = Callable[[LogRecord], str | None]
"""A function that returns the session of a log record without a trace id; None if the record names
no session."""


@dataclass(frozen=True)
class Signal:
    """A signal of OTLP: the names and types in its requests, and the check of a single item."""

    name: str
    """`trace` or `log`."""
    item: str
    """The word for one item: `span` or `log record`."""
    resources: str
    """The name of the field of a request, and of a stored message, with the list of resources.
    `scopes` and `items` name the fields with the scopes of a resource and the items of a scope."""
    scopes: str
    items: str
    response_type: Any
    rejected: str
    """The field of a partial success that counts rejected items."""
    request_type: Any
    resource_type: Any
    scope_type: Any
    item_type: Any
    times: tuple[str, str]
    """The names of the two fields with times."""
    why_refused: Callable[[Any, bytes], str | None]
    """Returns why an item with this trace id cannot be stored; None if it can."""
    session_of: SessionOf | None = None
    """Finds the session of an item without a trace id; None: all such items are rejected."""


def _problem_of_span(span: WireSpan, trace_id: bytes) -> str | None:
    # Called for each span of each request, so each field is read once.
    span_id = span.span_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE_ID:
        return NO_TRACE
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN_ID:
        return f"Its span id must be {SPAN_ID_BYTES} bytes that are not all zero."
    return None


def _problem_of_log(record: WireLogRecord, trace_id: bytes) -> str | None:
    if len(record.span_id) not in (0, SPAN_ID_BYTES):
        return f"Its span id must be {SPAN_ID_BYTES} bytes."
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE_ID:
        return NO_TRACE
    return None


SPANS = Signal(
    name="trace",
    item="span",
    resources="resource_spans",
    scopes="scope_spans",
    items="spans",
    response_type=ExportTraceServiceResponse,
    rejected="rejected_spans",
    request_type=ExportTraceServiceRequest,
    resource_type=ResourceSpans,
    scope_type=ScopeSpans,
    item_type=WireSpan,
    times=("start_time_unix_nano", "end_time_unix_nano"),
    why_refused=_problem_of_span,
)

LOGS = Signal(
    name="log",
    item="log record",
    resources="resource_logs",
    scopes="scope_logs",
    items="log_records",
    response_type=ExportLogsServiceResponse,
    rejected="rejected_log_records",
    request_type=ExportLogsServiceRequest,
    resource_type=ResourceLogs,
    scope_type=ScopeLogs,
    item_type=WireLogRecord,
    times=("time_unix_nano", "observed_time_unix_nano"),
    why_refused=_problem_of_log,
)


def by_signal(trace: TraceSpans) -> list[tuple[Signal, TraceSpans]]:
    """Split a stored message into one with spans and one with log records.

    A message without items is omitted.
    """
    parts = StoredParts.FromString(trace.message)
    if not (parts.resource_spans and parts.resource_logs):
        return [(LOGS if parts.resource_logs else SPANS, trace)]
    logs = StoredParts(resource_logs=parts.resource_logs).SerializeToString()
    spans = StoredParts(resource_spans=parts.resource_spans).SerializeToString()
    count = sum(1 for _ in logs_in(StoredMessage.FromString(logs)))
    return [
        (SPANS, TraceSpans(trace.trace_id, spans, trace.count - count)),
        (LOGS, TraceSpans(trace.trace_id, logs, count)),
    ]


def request_of(signal: Signal, message: bytes) -> bytes:
    """Return a stored message as an export request. It must contain items of one signal only."""
    if signal.resources == SPANS.resources:
        return message
    logs = signal.request_type(resource_logs=StoredMessage.FromString(message).resource_logs)
    request: bytes = logs.SerializeToString()
    return request


# --- The spans or log records of one OTLP request: check each of them, and group them by trace.

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
    """The accepted items, in the order of the first items: a message for each trace, or several if
    a message would weigh more than `BLOCK_BYTES`."""
    indexes: list[int] = field(default_factory=list)
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
    # Not `any`, which would stop at the first.
    is_changed = sum([_correct(item, signal) for *_, items in groups for item in items]) > 0
    trace_ids = _check(groups, decoded, signal)
    decoded.count = len(trace_ids)
    distinct = set(trace_ids)
    is_small = body is not None and weight(len(body), decoded.count) <= BLOCK_BYTES
    if body and is_small and len(distinct) == 1 and not decoded.refused and not is_changed:
        trace_id = distinct.pop()
        assert trace_id is not None
        decoded.traces.append(TraceSpans(trace_id, body, decoded.count))
        decoded.indexes += range(decoded.count)
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
                    elif not any(item.trace_id):
                        reason = NO_SESSION
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
    """Add the messages of each trace to `decoded`, with the trace's items."""
    parts: dict[tuple[bytes, int], list[bytes]] = {}
    indexes: dict[tuple[bytes, int], list[int]] = {}
    filled: dict[bytes, tuple[int, int]] = {}  # the number and the weight of a trace's last message
    index = 0
    for resource_items, scope_items, items in groups:
        by_message: dict[tuple[bytes, int], list[bytes]] = {}
        for item in items:
            if (trace_id := trace_ids[index]) is not None:
                content = item.SerializeToString(deterministic=True)
                number, before = filled.get(trace_id, (0, 0))
                total = before + weight(len(content), 1)
                if before and total > BLOCK_BYTES:
                    number, total = number + 1, total - before
                filled[trace_id] = number, total
                by_message.setdefault((trace_id, number), []).append(content)
                indexes.setdefault((trace_id, number), []).append(index)
            index += 1
        if by_message:
            envelope = Envelope.of_messages(resource_items, scope_items)
            for key, some in by_message.items():
                parts.setdefault(key, []).append(envelope.body(*some))
    for key, of_message in indexes.items():
        message = StoredParts(**{signal.resources: parts.pop(key)}).SerializeToString()
        decoded.traces.append(TraceSpans(key[0], message, len(of_message)))
        decoded.indexes += of_message


# --- Times in another unit than nanoseconds, impossible times, and malformed ids of parents.

_YEAR_2000, _YEAR_2100 = 946_684_800 * 10**9, 4_102_444_800 * 10**9
_UNITS = (1, 1000, 10**6, 10**9)
"""How many nanoseconds a nanosecond, a microsecond, a millisecond and a second have."""
RECEIVED = "tracer.received."
"""The beginning of the name of an attribute that has a received value that was replaced."""
_PARENT = "parent_span_id"


def _correct(item: Any, signal: Signal) -> bool:
    """Replace impossible times and a malformed parent id, and return whether there were any.

    The unit of a time is the one that puts it between the years 2000 and 2100. If no unit does, the
    time is missing; a missing end is then the start. A span with a malformed parent id has no
    parent. An attribute has each value that was received.
    """
    if isinstance(item, str):  # it is rejected
        return False
    is_changed = _correct_times(item, signal)
    if signal is SPANS and len(parent := item.parent_span_id) not in (0, SPAN_ID_BYTES):
        item.parent_span_id, is_changed = b"", True
        if any(parent):
            note = item.attributes.add(key=RECEIVED + _PARENT)
            note.value.string_value = parent.hex()[:100]
    return is_changed


def _correct_times(item: Any, signal: Signal) -> bool:
    start_name, end_name = signal.times
    start, end = getattr(item, start_name), getattr(item, end_name)
    if _is_possible(start) and _is_possible(end):
        return False
    for name, value in ((start_name, start), (end_name, end)):
        if not _is_possible(value):
            setattr(item, name, _in_nanoseconds(value))
            note = item.attributes.add(key=RECEIVED + name)
            note.value.string_value = str(value)
    if end and not getattr(item, end_name):
        setattr(item, end_name, getattr(item, start_name))
    return True


def _is_possible(time: int) -> bool:
    return time == 0 or _YEAR_2000 <= time < _YEAR_2100


def _in_nanoseconds(time: int) -> int:
    found = (time * unit for unit in _UNITS if _YEAR_2000 <= time * unit < _YEAR_2100)
    return next(found, 0)


# --- Decode OTLP requests in JSON.
#
# A span or log record that cannot be stored is rejected. The other items of the request are
# accepted.

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

_PYTHON_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)
_NOT_OF_THAT_SHAPE = (json_format.Error, Error, *_PYTHON_ERRORS)
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
        fields = _with_whole_times(_with_base64_ids(item), signal)
        if signal is SPANS and isinstance(fields.get("links"), list):
            fields["links"] = [
                link for each in fields["links"] if (link := _link_of(each)) is not None
            ]
        try:
            _parse(fields, message)
        except _NOT_OF_THAT_SHAPE:
            message = signal.item_type()
            _parse(_with_readable_attributes(fields, signal), message)
    except _NOT_OF_THAT_SHAPE:
        return (
            f"It lacks the form of an OTLP {signal.item} in JSON, or nests too deeply. Ids are "
            "hexadecimal: `traceId` has 32 digits, `spanId` 16."
        )
    return message


def _with_readable_attributes(fields: dict[str, Any], signal: Signal) -> dict[str, Any]:
    """Return the fields of an item without malformed attributes, and with a note of their number.

    The note has no text of them, because redaction could not recognize the parts of malformed text.
    """
    received = fields.get("attributes")
    received = received if isinstance(received, list) else [received]
    readable = []
    for each in received:
        with suppress(*_NOT_OF_THAT_SHAPE):
            _parse({"attributes": [each]}, signal.item_type())
            readable += [each] if isinstance(each, dict) and "key" in each else []
    kept = fields | {"attributes": readable}
    _note(kept, "attributes", f"{len(received) - len(readable)} malformed")
    return kept


_DIGITS = re.compile("[0-9]{1,19}")


def _with_whole_times(fields: dict[str, Any], signal: Signal) -> dict[str, Any]:
    """Return the fields of an item with times that are integers; 0 for a time that is no number."""
    for snake in signal.times:
        for name in (snake, to_camel(snake)):
            value = fields.get(name)
            if value is None or (isinstance(value, str) and _DIGITS.fullmatch(value)):
                continue
            try:
                seconds = Decimal(str(value))
                whole = next(
                    int(seconds * unit)
                    for unit in _UNITS
                    if seconds == int(seconds) or _YEAR_2000 <= seconds * unit < _YEAR_2100
                )
            except (ArithmeticError, ValueError, StopIteration):
                whole = 0
            fields[name] = whole if 0 <= whole < 2**64 else 0
            if not fields[name] and value != 0:
                _note(fields, snake, value)
                if snake == signal.times[1]:  # it has ended
                    start = signal.times[0]
                    fields[name] = fields.get(to_camel(start), fields.get(start, 0))
    return fields


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
    found = dict(fields)
    for key in _IDS.intersection(fields):
        if not (received := fields[key]):
            continue
        try:
            found[key] = base64.b64encode(_id_of(received)).decode()
        except _PYTHON_ERRORS:
            if key not in (_PARENT, to_camel(_PARENT)):
                raise
            del found[key]
            _note(found, _PARENT, received)
    return found


def _note(fields: dict[str, Any], name: str, received: Any) -> None:
    """Add an attribute with a received value that was replaced to the fields of an item."""
    note = {"key": RECEIVED + name, "value": {"stringValue": str(received)[:100]}}
    fields["attributes"] = [*(fields.get("attributes") or ()), note]


def _id_of(value: Any) -> bytes:
    """Return the bytes of an id in hexadecimal, as OTLP/JSON requires, or in base64.

    Protobuf's own JSON format writes base64, and some exporters use it. Other values than 8 or 16
    bytes are rejected.
    """
    if isinstance(value, dict):  # a buffer of Node.js
        value = value.get("data")
    if isinstance(value, list):  # bytes as a list of numbers
        return bytes(value)
    try:
        found = bytes.fromhex(value)
    except ValueError:
        found = b""
    if len(found) not in (SPAN_ID_BYTES, TRACE_ID_BYTES):
        padded = value + "=" * (-len(value) % 4)
        decoded = base64.b64decode(padded, altchars=b"-_" if {"-", "_"} & {*value} else None)
        if len(decoded) in (SPAN_ID_BYTES, TRACE_ID_BYTES):
            return decoded
        if not found:
            raise ValueError("The id is neither hexadecimal nor base64.")
    return found


# --- Decode OTLP requests in protobuf.
#
# A span or log record that cannot be stored is rejected. The other items of the request are
# accepted.

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


# --- Decode OTLP log requests.
#
# A log record that cannot be stored is rejected. The other records of the request are accepted.


def decode_logs_protobuf(body: bytes, session_of: SessionOf | None = None) -> Decoded:
    """Return the log records of a serialized `ExportLogsServiceRequest`.

    Raises the same errors as `decode_protobuf`.

    Args:
        body: The serialized request.
        session_of: A function that returns the session of a log record. A record without a trace id
            is stored in the run of its session (`session_run_id`). If this argument is None, such a
            record is rejected.
    """
    return decode_protobuf(body, replace(LOGS, session_of=session_of))


def decode_logs_json(body: bytes, session_of: SessionOf | None = None) -> Decoded:
    """Return the log records of an OTLP/JSON request.

    The arguments are those of `decode_logs_protobuf`. Raises the same errors as `decode_json`.
    """
    return decode_json(body, replace(LOGS, session_of=session_of))
