"""Events with their secrets masked: before a spool, the wire or a store gets to see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from tracer.events import Event
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


Change = Callable[[str, str], str]
"""Returns what is kept of the text of a field, by the field's name."""


def masking(redaction: Redaction) -> Change:
    """Return what masks the secrets in the text of a field."""

    def masked(name: str, text: str) -> str:
        if name in WHOLE_TEXTS:
            return redaction.text(text)
        found = redaction.value(text)
        return _NO_CODE if name in _CODES and found != text else found

    return masked


def changed_event(event: Event, change: Change) -> Event:
    """Return an event with its texts changed; itself where none is."""
    changed: Event = _changed(event, change)
    return changed


def text_size(shape: BaseModel) -> int:
    """Return how many characters an event, or a part of one, has in its texts."""
    size = 0
    for name in _fields(type(shape)):
        value = getattr(shape, name)
        if value:
            for each in value if isinstance(value, tuple) else (value,):
                size += len(each) if isinstance(each, str) else text_size(each)
    return size


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
