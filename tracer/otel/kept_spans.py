"""What is kept of spans: no secrets, and no more of payloads than a project wants."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from pydantic.alias_generators import to_camel

from tracer.otel.carried_records import RECORD
from tracer.otel.spans import Span
from tracer.otel.wire_spans import Around, Decoded, take
from tracer.payloads import PAYLOAD_TEXTS, kept_of
from tracer.project_settings import PayloadPolicy
from tracer.redaction import Redaction, mask
from tracer.text import PREVIEW_BYTES

_IS_PAYLOAD = re.compile(
    r"(?:^|[._])(?:messages?|inputs?|outputs?|prompts?|completions?|arguments|args|results?|contents?"
    r"|response|request_data|return|stacktrace|value|instructions|events|input_data|params|body)$"
)
"""What the keys of attributes end with that hold payloads, in all dialects."""


_LONG_INTEGER = re.compile(rb"\x18[\x80-\xff]{5,7}[\x01-\x7f]")
_LONG_FLOAT = re.compile(rb"!.{7}[BC]", re.DOTALL)
"""What an `AnyValue` looks like whose number is as long as a card's."""


def kept_span(span: Span, redaction: Redaction, policy: PayloadPolicy) -> Span:
    """Return what is kept of a span; itself where that is all of it."""
    # One look at all of it, as it came; what is not ASCII may look as it likes.
    may_hold_secret = redaction.may_hold_secret(span.body.decode("latin-1"))
    has_long_number = _LONG_INTEGER.search(span.body) or _LONG_FLOAT.search(span.body)
    if policy is PayloadPolicy.KEEP and not may_hold_secret and not has_long_number:
        return span
    kept = ResourceSpans.FromString(span.body)
    if not _Changing(redaction, policy).is_changed_in(kept):
        return span
    scope_spans = kept.scope_spans[0]
    decoded = Decoded()
    take(decoded, Around.of_messages(kept, scope_spans), scope_spans.spans[0])
    return decoded.spans[0]


_PAYLOAD_NAMES = {to_camel(name) for name in PAYLOAD_TEXTS}


class _Changing:
    """Masks secrets in messages, and cuts payloads."""

    def __init__(self, redaction: Redaction, policy: PayloadPolicy) -> None:
        self._redaction = redaction
        self._policy = policy
        self._is_changed = False

    def is_changed_in(self, kept: ResourceSpans) -> bool:
        """Mask what a `ResourceSpans` holds, and return whether there was anything.

        Fields that its definition does not know cannot be read and so not masked: they go.
        """
        size = kept.ByteSize()
        kept.DiscardUnknownFields()
        self._is_changed = kept.ByteSize() != size
        self._message(kept)
        return self._is_changed

    def _message(self, message: Any) -> None:
        """Mask what any message holds, whatever its fields."""
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
            elif field.type == field.TYPE_BYTES and not isinstance(message, WireSpan):
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
        if key == RECORD:
            self._text(value, "string_value", self._cut_record)
        elif _IS_PAYLOAD.search(key):
            if value.WhichOneof("value") in ("array_value", "kvlist_value", "bytes_value"):
                size = value.ByteSize()
                if self._policy is PayloadPolicy.DROP or size > PREVIEW_BYTES:
                    value.string_value = f"[masked: payload of {size} bytes]"
                    self._is_changed = True
            else:
                self._text(value, "string_value", lambda text: kept_of(text, self._policy))

    def _cut_record(self, text: str) -> str:
        """Return the record that a span carries without its payloads."""
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            return kept_of(text, self._policy)
        if not isinstance(record, dict):
            return kept_of(text, self._policy)
        error = record.get("error")
        for part in (record, error if isinstance(error, dict) else {}):
            for name, value in part.items():
                if name in _PAYLOAD_NAMES and isinstance(value, str):
                    part[name] = kept_of(value, self._policy)
        return orjson.dumps(record).decode()

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
    """Return whether there is anything to hide: neither nothing, nor yes or no, nor a mask."""
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
