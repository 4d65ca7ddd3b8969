"""Redact spans and log records before they are stored.

Secrets are masked. Payloads are shortened or removed as the project's payload policy requires.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.spans import Envelope, StoredMessage, StoredParts, scopes_of, scopes_of_logs
from tracer.records.masks import PayloadPolicy, mask, stored_payload
from tracer.redaction import ANY_VALUE, Redaction
from tracer.text import PREVIEW_BYTES

_IS_PAYLOAD = re.compile(
    r"(?:^|[._])(?:messages?|inputs?|outputs?|prompts?|completions?|arguments|args|results?|contents?"
    r"|response|tool_parameters|request_data|return|stacktrace|value|instructions|events|input_data|params|body)$"
)
"""Matches the keys of attributes that contain payloads, in all dialects."""


def redact_spans(message: bytes, redaction: Redaction, policy: PayloadPolicy) -> bytes:
    """Return a stored message with secrets masked and payloads shortened.

    Returns:
        The message itself if it contains no secret and the policy keeps payloads. Otherwise a new
        message. In each changed span, log record, resource or scope, fields that OTLP does not
        define are removed, because they cannot be masked.

    Raises:
        google.protobuf.message.DecodeError: The message cannot be parsed.
    """
    changing = _Changing(redaction, policy)
    if not changing.is_due(message):
        return message
    data = StoredMessage.FromString(message)
    parts = StoredParts()
    for resource_spans, scope_spans in scopes_of(data):
        envelope = _redact_envelope(changing, Envelope.of_messages(resource_spans, scope_spans))
        spans = [_redact_item(changing, span) for span in scope_spans.spans]
        parts.resource_spans.append(envelope.body(*spans))
    for resource_logs, scope_logs in scopes_of_logs(data):
        envelope = _redact_envelope(changing, Envelope.of_messages(resource_logs, scope_logs))
        records = [_redact_item(changing, record) for record in scope_logs.log_records]
        parts.resource_logs.append(envelope.body(*records))
    stored: bytes = parts.SerializeToString()
    return stored


def _redact_item(changing: _Changing, item: WireSpan | WireLogRecord) -> bytes:
    content = item.SerializeToString(deterministic=True)
    if changing.is_due(content) and changing.is_changed_in(item):
        return item.SerializeToString(deterministic=True)
    return content


def _redact_envelope(changing: _Changing, envelope: Envelope) -> Envelope:
    body = envelope.body()
    if changing.is_due(body):
        alone = ResourceSpans.FromString(body)
        if changing.is_changed_in(alone):
            return Envelope.of_messages(alone, alone.scope_spans[0])
    return envelope


_WITH_IDS = (WireSpan, WireLogRecord)
"""Messages whose own fields of type `bytes` contain ids. These fields need no masking."""


class _Changing:
    """Masks secrets and shortens payloads in parsed messages, in place."""

    def __init__(self, redaction: Redaction, policy: PayloadPolicy) -> None:
        self._redaction = redaction
        self._policy = policy
        self._is_changed = False

    def is_due(self, content: bytes) -> bool:
        """Return whether a serialized part of a message must be examined."""
        return self._policy is not PayloadPolicy.KEEP or self._redaction.may_hold_secret(content)

    def is_changed_in(self, part: ResourceSpans | WireSpan | WireLogRecord) -> bool:
        """Mask and shorten the values of a part of a message. Return whether anything changed.

        Fields that the protobuf definition does not contain are removed, because they cannot be
        masked.
        """
        size = part.ByteSize()
        part.DiscardUnknownFields()
        self._is_changed = part.ByteSize() != size
        self._message(part)
        if isinstance(part, WireLogRecord) and self._policy is not PayloadPolicy.KEEP:
            self._cut("body", part.body)
        return self._is_changed

    def _message(self, message: Any) -> None:
        """Mask the values of all fields of a message, including nested messages."""
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in value if field.is_repeated else [value]:
                    self._pair(part) if isinstance(part, KeyValue) else self._message(part)
            elif field.is_repeated and field.type == field.TYPE_STRING:
                for index, part in enumerate(value):
                    value[index] = self._changed(part, self._redaction.text)
            elif field.type == field.TYPE_STRING:
                by_form = field.name == "trace_state"
                masked = self._redaction.value if by_form else self._redaction.text
                self._text(message, field.name, masked)
            elif field.type == field.TYPE_BYTES and not isinstance(message, _WITH_IDS):
                with suppress(UnicodeDecodeError):
                    text = self._changed(value.decode(), self._redaction.text)
                    setattr(message, field.name, text.encode())
            elif field.name in ("int_value", "double_value"):
                number = _text_of(message)
                if (masked_number := self._changed(number, self._redaction.value)) != number:
                    message.string_value = masked_number

    def _pair(self, pair: KeyValue) -> None:
        rule = self._redaction.rule_of(pair.key, _text_of(pair.value))
        if rule is None:
            self._message(pair.value)
        else:
            pair.value.string_value = mask(rule)
            self._is_changed = True
        self._text(pair, "key", self._redaction.value)
        if self._policy is not PayloadPolicy.KEEP:
            self._cut(pair.key, pair.value)

    def _cut(self, key: str, value: AnyValue) -> None:
        if _IS_PAYLOAD.search(key):
            if value.WhichOneof("value") in ("array_value", "kvlist_value", "bytes_value"):
                size = value.ByteSize()
                if self._policy is PayloadPolicy.DROP or size > PREVIEW_BYTES:
                    value.string_value = f"[masked: payload of {size} bytes]"
                    self._is_changed = True
            else:
                self._text(value, "string_value", lambda text: stored_payload(text, self._policy))

    def _text(self, message: Any, field: str, masked: Callable[[str], str]) -> None:
        if text := getattr(message, field):
            setattr(message, field, self._changed(text, masked))

    def _changed(self, text: str, masked: Callable[[str], str]) -> str:
        new = masked(text)
        self._is_changed |= new != text
        return new


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
