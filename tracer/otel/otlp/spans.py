"""Spans and log records of OpenTelemetry: as protobuf, as JSON, and as Python values."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

import orjson
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.records.spans import TRACE_ID_BYTES, LogRecord, ReadableSpan, Span, SpanEvent, SpanLink
from tracer.text import escape

# --- Fields that every kind of record takes from its span: ids, times, status and errors.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)  # called several times for each span
def root_plan_id(trace_id: bytes) -> UUID:
    """Return the run id of a trace, which is the trace id as a UUID."""
    return UUID(bytes=trace_id)


def run_ids_like(record_id: UUID) -> tuple[UUID, UUID]:
    """Return the least and the greatest id of the runs that may contain a record.

    The id of a record that was created from a span begins with the first six bytes of its run id.
    """
    beginning = record_id.bytes[:6]
    return UUID(bytes=beginning + bytes(10)), UUID(bytes=beginning + b"\xff" * 10)


def moment(nanoseconds: int) -> datetime | None:
    """Return a time, rounded down to microseconds; None for 0, which means no time."""
    if nanoseconds == 0:
        return None
    return EPOCH + timedelta(0, 0, nanoseconds // 1000)


def stored(text: str | None) -> str | None:
    """Return the stored form of a text (`tracer.text`)."""
    # Most text is plain ASCII, which is its own stored form.
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return escape(text)


def error_of(span: ReadableSpan) -> tuple[str | None, str | None, str | None]:
    """Return the error type, message and stack of a span, in stored form.

    They come from the span's last exception event, or else from its status and the attribute
    `error.type`. A value is None if it is missing.
    """
    exceptions = [event.attributes for event in span.events if event.name == "exception"]
    exception: Any = exceptions[-1] if exceptions else {}

    def field(name: str) -> str | None:
        value = exception.get(f"exception.{name}")
        return stored(value) if isinstance(value, str) and value else None

    kind = field("type") or span.attributes.get("error.type")
    error_type = stored(kind) if isinstance(kind, str) else None
    message = field("message") or stored(span.status_message) or None
    return error_type, message, field("stacktrace")


# --- Protobuf definitions with the wire format of OTLP, for all that OTLP's own definitions cannot
# do.
#
# They parse stored messages, read and write messages whose parts stay serialized, and parse
# requests with strings that are not valid UTF-8.

_SMALL = bytes(range(0x20))

_FILES = (common_pb2, resource_pb2, trace_pb2, logs_pb2, trace_service_pb2, logs_service_pb2)


def most_fields(message: bytes) -> int:
    """Return an upper estimate of the number of fields in a message, including nested fields.

    The message is not parsed. The estimate is the number of bytes below 32: the length of a short
    field is such a byte, and so is the tag of a field that contains a message. Text contains few
    such bytes.
    """
    return len(message) - len(message.translate(None, _SMALL))


_REPEATED, _OPTIONAL = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL


def _add_own_messages() -> Iterable[Any]:
    """Define the three messages below, and yield their classes."""
    file = FileDescriptorProto(name="tracer/stored.proto", package="tracer")
    file.dependency.extend([trace_pb2.DESCRIPTOR.name, logs_pb2.DESCRIPTOR.name])
    kinds = (trace_pb2.ResourceSpans, logs_pb2.ResourceLogs)
    resources = [
        ("resource_spans", _REPEATED, f".{kinds[0].DESCRIPTOR.full_name}"),
        ("resource_logs", _REPEATED, f".{kinds[1].DESCRIPTOR.full_name}"),
    ]
    messages: dict[str, list[tuple[str, FieldDescriptorProto.Label.ValueType, str]]] = {
        "StoredMessage": resources,
        "StoredParts": [(name, label, "") for name, label, _ in resources],
        "Group": [("head", _OPTIONAL, ""), ("items", _REPEATED, ""), ("schema_url", _OPTIONAL, "")],
    }
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, label, kind) in enumerate(fields, 1):
            type_ = FieldDescriptorProto.TYPE_MESSAGE if kind else FieldDescriptorProto.TYPE_BYTES
            message.field.add(
                name=field, number=number, label=label, type=type_, type_name=kind or None
            )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    for name in messages:
        yield message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tracer.{name}"))


StoredMessage: Any
"""A stored message: `TracesData` with `ResourceLogs` in field 2."""
StoredParts: Any
"""A stored message whose resources are not parsed, but bytes."""
Group: Any
"""A resource with its scopes, or a scope with its items. All parts are bytes."""
StoredMessage, StoredParts, Group = _add_own_messages()


def parse(kind: Any, content: bytes) -> tuple[Any, bytes]:
    """Return a parsed OTLP message, and its bytes.

    Each byte sequence in a string that is not valid UTF-8 is replaced by U+FFFD, also in the bytes.

    Raises:
        google.protobuf.message.DecodeError: The content is cut off, malformed, or nests too deeply.
    """
    try:
        return kind.FromString(content), content
    except DecodeError:
        message = _with_bytes(kind.DESCRIPTOR.full_name).FromString(content)
    _replace_invalid(message)
    content = message.SerializeToString()
    return kind.FromString(content), content


@cache
def _with_bytes(name: str) -> Any:
    """Return the class of a message of OTLP in which strings are bytes."""
    return message_factory.GetMessageClass(_pool_with_bytes().FindMessageTypeByName(name))


@cache
def _pool_with_bytes() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in _FILES:
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in _all_messages(file.message_type):
            for field in message.field:
                if field.type == FieldDescriptorProto.TYPE_STRING:
                    field.type = FieldDescriptorProto.TYPE_BYTES
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _all_messages(messages: Iterable[Any]) -> Iterable[Any]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_type)


def _replace_invalid(message: Any) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _replace_invalid(part)
        elif _is_text(field.full_name):
            if field.is_repeated:
                value[:] = map(_valid, value)
            else:
                setattr(message, field.name, _valid(value))


@cache
def _is_text(name: str) -> bool:
    """Return whether OTLP defines a field as a string."""
    field = descriptor_pool.Default().FindFieldByName(name)
    return bool(field.type == FieldDescriptor.TYPE_STRING)


def _valid(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


# --- Convert OTLP span messages to `Span` objects with their resource and scope.

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


# --- Log records, the second signal of OTLP. They are stored together with the spans of their
# trace.
#
# A *stored message* is a `TracesData` message with an additional field 2, which holds
# `ResourceLogs`. Parsers of `TracesData` skip this field. Two stored messages can be concatenated:
# the result is a stored message with all items.


def logs_of(messages: Iterable[bytes]) -> list[LogRecord]:
    """Return the log records in stored messages, sorted by time, without duplicates.

    Raises:
        google.protobuf.message.DecodeError: A message cannot be parsed.
    """
    return merge_logs(
        record for message in messages for record in logs_in(StoredMessage.FromString(message))
    )


def merge_logs(records: Iterable[LogRecord]) -> list[LogRecord]:
    """Return log records sorted by time, without duplicates."""
    return sorted({record.sent: record for record in records}.values(), key=lambda each: each.order)


def logs_in(message: Any) -> Iterator[LogRecord]:
    """Yield the log records of a `StoredMessage`, in the order of the message."""
    for resource_logs, scope_logs in scopes_of_logs(message):
        envelope = Envelope.of_messages(resource_logs, scope_logs)
        for record in scope_logs.log_records:
            yield log_of(envelope, record)


def scopes_of_logs(message: Any) -> Iterator[tuple[ResourceLogs, ScopeLogs]]:
    """Yield the resource and the scope of each scope of a `StoredMessage` that has log records."""
    for resource_logs in message.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            if scope_logs.log_records:
                yield resource_logs, scope_logs


def log_of(envelope: Envelope, record: WireLogRecord) -> LogRecord:
    """Convert an OTLP log record to a `LogRecord`."""
    attributes = attributes_of(record.attributes)
    body = value_of(record.body) if record.HasField("body") else None
    named = attributes.get("event.name")
    name = named if isinstance(named, str) else record.event_name
    return LogRecord(
        record.trace_id,
        record.span_id if any(record.span_id) else None,
        record.time_unix_nano or record.observed_time_unix_nano,
        name or (body if isinstance(body, str) else ""),
        body,
        attributes,
        envelope.resource,
        envelope.scope,
        envelope.body(record.SerializeToString(deterministic=True)),
    )


def session_run_id(session: str) -> bytes:
    """Return the id of a session's own run.

    This run stores those log records of the session that have no trace id.
    """
    content = b"tracer session\0" + session.encode(errors="surrogatepass")
    return blake2b(content, digest_size=TRACE_ID_BYTES).digest()


def encode_logs(records: Iterable[LogRecord]) -> bytes:
    """Return log records as a stored message (see the module's docstring)."""
    message: bytes = StoredParts(
        resource_logs=[record.sent for record in records]
    ).SerializeToString()
    return message


# --- Encode stored spans and log records as OTLP, with the content that they arrived with.


def encode_protobuf(spans: Iterable[Span]) -> bytes:
    """Return spans as a serialized `ExportTraceServiceRequest`, which is also a `TracesData`."""
    message: bytes = StoredParts(resource_spans=[span.body for span in spans]).SerializeToString()
    return message


def json_of(item: Span | LogRecord) -> bytes:
    """Return a span or a log record as an element of `resourceSpans` or `resourceLogs`."""
    resource: ResourceSpans | ResourceLogs
    if isinstance(item, Span):
        resource = ResourceSpans.FromString(item.body)
    else:
        resource = ResourceLogs.FromString(item.sent)
    message: dict[str, Any] = json_format.MessageToDict(resource, use_integers_for_enums=True)
    for scope_items in message.get("scopeSpans", message.get("scopeLogs", ())):
        for each in scope_items.get("spans", scope_items.get("logRecords", ())):
            _hex_ids(each)
            for link in each.get("links", ()):
                _hex_ids(link)
    return orjson.dumps(message)


def _hex_ids(fields: dict[str, Any]) -> None:
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in fields:
            fields[name] = base64.b64decode(fields[name]).hex()
