"""Redact events and payloads before they reach the spool, the network or a store."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from tracer.records.masks import PAYLOAD_TEXTS, WHOLE_TEXTS, PayloadPolicy, stored_payload
from tracer.redaction.redactor import Redaction

# --- Redact events before they reach the spool, the network or a store.

_CODES = ("reason",)
"""Fields that may contain only a lower-case name. A secret in them is replaced by `masked`, because
the brackets of a mask are not allowed."""

_MASKED_CODE = "masked"


E = TypeVar("E", bound=BaseModel)
"""An event of `tracer.records.events`. These functions need only its fields."""

TextChange = Callable[[str, str], str]
"""A function that gets the name and the text of a field, and returns the text to store."""


def masking(redaction: Redaction, policy: PayloadPolicy = PayloadPolicy.KEEP) -> TextChange:
    """Return a function that masks secrets in the text of an event's field, and shortens it."""

    def masked(name: str, text: str) -> str:
        if name not in WHOLE_TEXTS:
            redacted = redaction.value(text)
            return _MASKED_CODE if name in _CODES and redacted != text else redacted
        redacted = redaction.text(text)
        return stored_payload(redacted, policy) if name in PAYLOAD_TEXTS else redacted

    return masked


def redacted_events(
    events: Sequence[E], redaction: Redaction, policy: PayloadPolicy = PayloadPolicy.KEEP
) -> Sequence[E]:
    """Return events with secrets masked, and payloads shortened by a project's policy.

    If no event contains a secret and the policy keeps payloads, return `events` itself.
    """
    if policy is PayloadPolicy.KEEP:
        texts = "\0".join([text for each in events for text in _texts(each)])
        if not redaction.may_hold_secret(texts):
            return events
    change = masking(redaction, policy)
    return [redact_event(event, change) for event in events]


def redact_event(event: E, change: TextChange) -> E:
    """Return a copy of an event with changed texts; the event itself if nothing changes."""
    changed: E = _changed("", event, change)
    return changed


def text_size(event: BaseModel) -> int:
    """Return the number of characters in all texts of an event."""
    return sum(map(len, _texts(event)))


def _texts(value: BaseModel) -> list[str]:
    texts: list[str] = []

    def collect(_: str, text: str) -> str:
        texts.append(text)
        return text

    _changed("", value, collect)
    return texts


def _changed(name: str, value: Any, change: TextChange) -> Any:
    """Return a value of the field `name` with changed texts; the same value if nothing changes."""
    if isinstance(value, str):
        return change(name, value)
    if isinstance(value, tuple):
        items = tuple(_changed(name, item, change) for item in value)
        return value if all(map(operator.is_, items, value)) else items
    if not isinstance(value, BaseModel):
        return value
    changed = {
        field: new
        for field in _fields(type(value))
        if (old := getattr(value, field)) and (new := _changed(field, old, change)) is not old
    }
    return value.model_copy(update=changed) if changed else value


@cache
def _fields(shape: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of an event class, or of a nested class, that may contain text."""
    fields = shape.model_fields.items()
    return tuple(name for name, field in fields if _holds_text(field.annotation))


def _holds_text(annotation: Any) -> bool:
    if annotation is str:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return bool(_fields(annotation))
    return any(_holds_text(part) for part in get_args(annotation))
