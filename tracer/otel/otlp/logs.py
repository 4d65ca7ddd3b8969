"""Log records, the second signal of OTLP. They are stored together with the spans of their trace.

A *stored message* is a `TracesData` message with an additional field 2, which holds `ResourceLogs`.
Parsers of `TracesData` skip this field. Two stored messages can be concatenated: the result is a
stored message with all items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs

from tracer.otel.otlp.protobuf import StoredMessage, StoredParts
from tracer.otel.otlp.protobuf_spans import Envelope, attributes_of, value_of
from tracer.records.spans import TRACE_ID_BYTES, LogRecord


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
