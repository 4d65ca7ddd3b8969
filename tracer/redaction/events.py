"""Events with their secrets masked: before a spool, the wire or a store gets to see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from tracer.redaction import Redaction

WHOLE_TEXTS = frozenset(
    {
        *("arguments", "effective_arguments", "result", "late_result", "state_changes"),
        *("thought", "messages", "title", "user_request", "request", "summary"),
        *("message", "stack", "error_message", "error_stack"),
    }
)
"""Texts that are looked through for keys with their values; in others only values are masked."""

_CODES = ("reason",)
"""Names in lower case letters, in which there is no place for a mask."""

_NO_CODE = "masked"


E = TypeVar("E", bound=BaseModel)
"""An event of `tracer.records.events`. These functions need only its fields."""

Change = Callable[[str, str], str]
"""Returns the text to store for the text of a field, by the field's name."""


def masking(redaction: Redaction) -> Change:
    """Return the function that masks the secrets in the text of a field."""

    def masked(name: str, text: str) -> str:
        if name in WHOLE_TEXTS:
            return redaction.text(text)
        found = redaction.value(text)
        return _NO_CODE if name in _CODES and found != text else found

    return masked


def redacted_events(events: Sequence[E], redaction: Redaction) -> Sequence[E]:
    """Return events with their secrets masked; those without secrets are the same objects."""
    if not may_hold_secret(events, redaction):
        return events
    change = masking(redaction)
    return [changed_event(event, change) for event in events]


def may_hold_secret(events: Sequence[BaseModel], redaction: Redaction) -> bool:
    """Return False if there is certainly nothing to mask in events.

    Looks at all texts at once, which takes a fraction of the time of a look at each.
    """
    return redaction.may_hold_secret("\0".join([text for each in events for text in _texts(each)]))


def changed_event(event: E, change: Change) -> E:
    """Return an event with its texts changed; the event itself if none changes."""
    changed: E = _changed(event, change)
    return changed


def text_size(event: BaseModel) -> int:
    """Return how many characters an event has in its texts."""
    return sum(map(len, _texts(event)))


def _texts(shape: BaseModel) -> list[str]:
    texts: list[str] = []
    for name in _fields(type(shape)):
        value = getattr(shape, name)
        if value:
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str):
                    texts.append(each)
                else:
                    texts += _texts(each)
    return texts


def _changed(shape: Any, change: Change) -> Any:
    changed = {}
    kind: type[BaseModel] = type(shape)
    for name in _fields(kind):
        value = getattr(shape, name)
        if value:  # text by itself is nearly all: a call less
            new = change(name, value) if type(value) is str else _new_value(name, value, change)
            if new is not value:
                changed[name] = new
    return shape.model_copy(update=changed) if changed else shape


def _new_value(name: str, value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(name, value)
    if isinstance(value, tuple):
        items = tuple(_new_value(name, item, change) for item in value)
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else items
    return _changed(value, change)


@cache
def _fields(shape: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of an event, or of a part of one, that may hold text."""
    fields = shape.model_fields.items()
    return tuple(name for name, field in fields if _holds_text(field.annotation))


def _holds_text(annotation: Any) -> bool:
    if annotation is str:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return bool(_fields(annotation))
    return any(_holds_text(part) for part in get_args(annotation))
