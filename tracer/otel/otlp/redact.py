"""Redact spans and log records before they are stored.

Secrets are masked. Payloads are shortened or removed as the project's payload policy requires.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.spans import Envelope, StoredMessage, StoredParts, scopes_of, scopes_of_logs
from tracer.records.masks import PayloadPolicy, mask, stored_payload
from tracer.redaction import Redaction
from tracer.text import PREVIEW_BYTES

_IS_PAYLOAD = re.compile(
    r"(?:^|[._])(?:messages?|inputs?|outputs?|prompts?|completions?|arguments|args|results?|contents?"
    r"|response|tool_parameters|request_data|return|stacktrace|value|instructions|events|input_data|params|body)$"
)
"""Matches the keys of attributes that contain payloads, in all dialects."""

_LONG_INTEGER = re.compile(rb"\x18(?=([\x80-\xff]{5,9}[\x00-\x7f]))")
_LONG_FLOAT = re.compile(rb"!(?=(.{7}[BC]))", re.DOTALL)
"""Matches the encoding of a float in an `AnyValue` that may be as long as a card number. Other
bytes may match, too. The group is a lookahead, because a number may begin inside a false match."""


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
    if policy is PayloadPolicy.KEEP and not _may_hold_secret(redaction, message):
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


def _may_hold_secret(redaction: Redaction, message: bytes) -> bool:
    if redaction.may_hold_secret(message):
        return True
    numbers = list(islice(_long_numbers(message), _MOST_NUMBERS))
    return len(numbers) == _MOST_NUMBERS or any(redaction.value(text) != text for text in numbers)


_MOST_NUMBERS = 1000
"""The maximum number of long numbers that are examined in a whole message. If a message has more,
examining it item by item is faster."""


def _long_numbers(message: bytes) -> Iterator[str]:
    """Yield the bytes in a message that look like long numbers, such as card numbers, as text.

    Some of them are not numbers, because the message is not parsed.
    """
    for match in _LONG_INTEGER.finditer(message):
        yield str(sum((byte & 0x7F) << 7 * position for position, byte in enumerate(match[1])))
    for match in _LONG_FLOAT.finditer(message):
        (value,) = _DOUBLE.unpack(match[1])
        if value.is_integer():
            yield str(int(value))


_DOUBLE = Struct("<d")


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
        return self._policy is not PayloadPolicy.KEEP or _may_hold_secret(self._redaction, content)

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
            parts = value if field.is_repeated else [value]
            if field.message_type is KeyValue.DESCRIPTOR:
                self._attributes(parts)
            elif field.message_type is AnyValue.DESCRIPTOR:
                for part in parts:
                    self._value(part)
            elif field.message_type is not None:
                for part in parts:
                    self._message(part)
            elif field.is_repeated and field.type == field.TYPE_STRING:
                for index, part in enumerate(parts):
                    value[index] = self._changed(part, self._redaction.text)
            elif field.type == field.TYPE_STRING:
                by_form = field.name == "trace_state"
                masked = self._redaction.value if by_form else self._redaction.text
                self._text(message, field.name, masked)
            elif field.type == field.TYPE_BYTES and not isinstance(message, _WITH_IDS):
                self._bytes(message, field.name)

    def _attributes(self, pairs: Any) -> None:
        for pair in pairs:
            rule = self._redaction.rule_of(pair.key)
            if rule is not None and _may_be_secret(pair.value):
                pair.value.string_value = mask(rule)
                self._is_changed = True
            elif rule is None:
                self._value(pair.value)
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

    def _value(self, value: AnyValue) -> None:
        match value.WhichOneof("value"):
            case "string_value":
                self._text(value, "string_value", self._redaction.text)
            case "array_value":
                for item in value.array_value.values:
                    self._value(item)
            case "kvlist_value":
                self._attributes(value.kvlist_value.values)
            case "bytes_value":
                self._bytes(value, "bytes_value")
            case "int_value":
                self._number(value, value.int_value)
            case "double_value":
                if value.double_value.is_integer():
                    self._number(value, int(value.double_value))

    def _number(self, value: AnyValue, number: int) -> None:
        masked = self._changed(str(number), self._redaction.value)
        if masked != str(number):
            value.string_value = masked

    def _bytes(self, message: Any, field: str) -> None:
        with suppress(UnicodeDecodeError):
            text = getattr(message, field).decode()
            setattr(message, field, self._changed(text, self._redaction.text).encode())

    def _text(self, message: Any, field: str, masked: Callable[[str], str]) -> None:
        if text := getattr(message, field):
            setattr(message, field, self._changed(text, masked))

    def _changed(self, text: str, masked: Callable[[str], str]) -> str:
        new = masked(text)
        self._is_changed |= new != text
        return new


def _may_be_secret(value: AnyValue) -> bool:
    """Return whether the value of a secret key must be masked.

    An empty value, a boolean and an existing mask need no masking.
    """
    match value.WhichOneof("value"):
        case "string_value":
            text = value.string_value
            return bool(text.strip()) and not (text.startswith("[masked: ") and text.endswith("]"))
        case "int_value" | "double_value" | "bytes_value":
            return True
        case "array_value":
            return len(value.array_value.values) > 0
        case "kvlist_value":
            return len(value.kvlist_value.values) > 0
    return False
