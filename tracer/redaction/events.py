"""Redact events and payloads before they reach the spool, the network or a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    if policy is PayloadPolicy.KEEP and not may_hold_secret(events, redaction):
        return events
    change = masking(redaction, policy)
    return [redact_event(event, change) for event in events]


def may_hold_secret(events: Sequence[BaseModel], redaction: Redaction) -> bool:
    """Return False if no event contains a secret; True if one may contain a secret."""
    return redaction.may_hold_secret("\0".join([text for each in events for text in _texts(each)]))


def redact_event(event: E, change: TextChange) -> E:
    """Return a copy of an event with changed texts; the event itself if nothing changes."""
    changed: E = _changed(event, change)
    return changed


def text_size(event: BaseModel) -> int:
    """Return the number of characters in all texts of an event."""
    return sum(map(len, _texts(event)))


def _texts(shape: BaseModel) -> list[str]:
    texts: list[str] = []

    def collect(_: str, text: str) -> str:
        texts.append(text)
        return text

    _changed(shape, collect)
    return texts


def _changed(shape: Any, change: TextChange) -> Any:
    changed = {}
    kind: type[BaseModel] = type(shape)
    for name in _fields(kind):
        value = getattr(shape, name)
        if value:  # nearly all values are strings, so they skip a call
            new = change(name, value) if type(value) is str else _new_value(name, value, change)
            if new is not value:
                changed[name] = new
    return shape.model_copy(update=changed) if changed else shape


def _new_value(name: str, value: Any, change: TextChange) -> Any:
    if isinstance(value, str):
        return change(name, value)
    if isinstance(value, tuple):
        items = tuple(_new_value(name, item, change) for item in value)
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else items
    return _changed(value, change)


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


# --- Threads in which large writes are redacted, so that the event loop is not blocked.

MAX_THREADS = 2
"""More threads would use more memory but not be faster, because Python runs one at a time."""

_threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="tracer-redaction")

Result = TypeVar("Result")


async def in_redaction_thread(call: Callable[[], Result]) -> Result:
    """Run `call` in one of at most `MAX_THREADS` threads, and return its result.

    A thread cannot be stopped. If the caller is cancelled, this function waits until the thread has
    ended, and then raises `CancelledError`. Raising earlier would release the request's memory
    while the thread still uses it.
    """
    running = _threads.submit(call)
    future = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        running.cancel()  # has an effect only if no thread has taken it yet
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # retrieved, because asyncio logs errors that are not
        raise
