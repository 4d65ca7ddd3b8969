"""Redact spans and log records before they are stored.

Secrets are masked. Payloads are shortened or removed as the project's payload policy requires.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.spans import Envelope, StoredMessage, StoredParts, scopes_of, scopes_of_logs
from tracer.records.masks import PayloadPolicy, mask, payload_mark, stored_payload
from tracer.records.spans import TraceSpans
from tracer.redaction import ANY_VALUE, Redaction
from tracer.text import PREVIEW_BYTES

_IS_PAYLOAD = re.compile(
    r"(?:^|[._])(?:messages?|inputs?|outputs?|prompts?|completions?|arguments|args|results?|contents?"
    r"|response|tool_parameters|request_data|return|stacktrace|value|instructions|events|input_data|params|body)$"
)
"""Matches the keys of attributes that contain payloads, in all dialects."""


def redacted_traces(
    traces: Sequence[TraceSpans], redaction: Redaction, policy: PayloadPolicy = PayloadPolicy.KEEP
) -> list[TraceSpans]:
    """Return traces with secrets masked and payloads shortened by a project's policy.

    Raises:
        TooManySecrets: The traces contain more secrets than are masked in one write.
    """
    redaction = redaction.of_write()
    return [
        replace(trace, message=redact_spans(trace.message, redaction, policy)) for trace in traces
    ]


def redact_spans(message: bytes, redaction: Redaction, policy: PayloadPolicy) -> bytes:
    """Return a stored message with secrets masked and payloads shortened.

    Returns:
        The message itself if it contains no secret and the policy keeps payloads. Otherwise a new
        message. In each span, log record, resource or scope that may contain a secret, fields that
        OTLP does not define are removed, because they cannot be masked.

    Raises:
        google.protobuf.message.DecodeError: The message cannot be parsed.
    """
    changing = _Changing(redaction, policy)
    if not changing.is_due(message):
        return message
    data, parts = StoredMessage.FromString(message), StoredParts()
    for scopes, field, bodies in (
        (scopes_of(data), "spans", parts.resource_spans),
        (scopes_of_logs(data), "log_records", parts.resource_logs),
    ):
        for resource, scope in scopes:
            items = getattr(scope, field)
            for part in (resource.resource, scope.scope, *items):
                changing.change(part)
            for part in (resource, scope):
                part.schema_url = redaction.text(part.schema_url)
            body = [item.SerializeToString(deterministic=True) for item in items]
            bodies.append(Envelope.of_messages(resource, scope).body(*body))
    stored: bytes = parts.SerializeToString()
    return stored


_WITH_IDS = (WireSpan, WireLogRecord)
"""Messages whose own fields of type `bytes` contain ids. These fields need no masking."""


class _Changing:
    """Masks secrets and shortens payloads in parsed messages, in place."""

    def __init__(self, redaction: Redaction, policy: PayloadPolicy) -> None:
        self._redaction = redaction
        self._policy = policy

    def is_due(self, content: bytes) -> bool:
        """Return whether a serialized part of a message must be examined."""
        return self._policy is not PayloadPolicy.KEEP or self._redaction.may_hold_secret(content)

    def change(self, part: Message) -> None:
        """Mask and shorten the values of a part of a message if they may contain a secret."""
        content = part.SerializeToString()
        if content and self.is_due(content):
            part.DiscardUnknownFields()
            self._fields(part)
            if isinstance(part, WireLogRecord):
                self._cut("body", part.body)

    def _fields(self, message: Any) -> None:
        """Mask the values of all fields of a message, including nested messages."""
        text = self._redaction.text
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in value if field.is_repeated else [value]:
                    self._pair(part) if isinstance(part, KeyValue) else self._fields(part)
            elif field.is_repeated and field.type == field.TYPE_STRING:
                value[:] = map(text, value)
            elif field.type == field.TYPE_STRING:
                by_form = field.name == "trace_state"
                setattr(message, field.name, (self._redaction.value if by_form else text)(value))
            elif field.type == field.TYPE_BYTES and not isinstance(message, _WITH_IDS):
                with suppress(UnicodeDecodeError):
                    setattr(message, field.name, text(value.decode()).encode())
            elif field.name in ("int_value", "double_value"):
                number = _text_of(message)
                if (masked := self._redaction.value(number)) != number:
                    message.string_value = masked

    def _pair(self, pair: KeyValue) -> None:
        rule = self._redaction.rule_of(pair.key, _text_of(pair.value))
        if rule is None:
            self._fields(pair.value)
        else:
            pair.value.string_value = mask(rule)
        pair.key = self._redaction.value(pair.key)
        self._cut(pair.key, pair.value)

    def _cut(self, key: str, value: AnyValue) -> None:
        if self._policy is PayloadPolicy.KEEP or not _IS_PAYLOAD.search(key):
            return
        kind, size = value.WhichOneof("value"), value.ByteSize()
        if kind == "string_value":
            value.string_value = stored_payload(value.string_value, self._policy)
        elif kind in ("array_value", "kvlist_value", "bytes_value") and (
            self._policy is PayloadPolicy.DROP or size > PREVIEW_BYTES
        ):
            value.string_value = payload_mark(size)


def _text_of(value: AnyValue) -> str:
    """Return a value as text, to decide whether it is secret. An empty text is never secret."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)
    if kind in ("int_value", "double_value"):
        number = getattr(value, kind)
        return str(int(number) if float(number).is_integer() else number)
    return "" if kind == "bool_value" or value.ByteSize() <= _EMPTY else ANY_VALUE


_EMPTY = 2
"""The size in bytes of a value that is an empty array, list or text."""
