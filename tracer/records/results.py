"""Endings of calls, steps and plans, and results and errors as text for records and models.

A tool's failure is a value here, not an exception.
"""

from __future__ import annotations

import json
import re
import traceback
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from enum import Enum
from types import TracebackType
from typing import Any, Literal, TypedDict

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from tracer.errors import LineageError, ToolError
from tracer.records.events import ErrorInfo
from tracer.records.status import Reason, Status

MODEL_VIEW_CHARACTERS = 64_000
"""The longest result that a model is shown; the record contains all of it."""

STACK_CHARACTERS = 20_000
"""How much of an error's stack is recorded, from its end."""

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""The types of most values, which contain no other values."""

_MACHINERY = frozenset({"anyio", "asyncio", "concurrent", "tenacity", "tracer"})
"""The packages whose frames precede the tool's first frame in a traceback."""


_REASON = re.compile("[a-z][a-z0-9_]{0,63}")

EndingStatus = Literal[Status.CANCELLED, Status.FAILED, Status.SUCCEEDED]


class EndingFields(TypedDict):
    """The fields that all events that end a record share, except the result."""

    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call, a step or a plan ended."""

    status: EndingStatus
    reason: str | None = None
    """A value of `Reason`, or a reason that the tool defines."""
    result: str | None = None
    error: ErrorInfo | None = None

    @property
    def fields(self) -> EndingFields:
        """The fields of the event that records this ending, except the result."""
        return {"status": self.status, "reason": self.reason, "error": self.error}

    def for_model(self) -> str:
        """Return the text for the model that chose the call."""
        if self.status is Status.SUCCEEDED:
            return model_view(self.result or "")
        error = {
            "status": self.status.value,
            "reason": self.reason,
            "type": self.error and self.error.type,
            "message": self.error and self.error.message,
        }
        known = {name: value for name, value in error.items() if value}
        return model_view(json.dumps({"error": known}, ensure_ascii=False))


def succeeded(result: str | None) -> Ending:
    """Return the ending of work that succeeded with `result`."""
    return Ending(Status.SUCCEEDED, result=result)


def failed(
    error: BaseException, reason: Reason | None = None, scrub: Callable[[str], str] = str
) -> Ending:
    """Return the ending of work that raised `error`.

    Args:
        error: The error.
        reason: The kind of failure. By default, the reason of a `ToolError` or `LineageError`, and
            `tool_error` for any other error.
        scrub: Removes the values that must not be shown from a text.
    """
    if reason is not None:
        return Ending(Status.FAILED, reason.value, error=error_info(error, scrub))
    error_reason = error.reason if isinstance(error, (ToolError, LineageError)) else ""
    name = error_reason if _REASON.fullmatch(error_reason) else Reason.TOOL_ERROR.value
    return Ending(Status.FAILED, name, error=error_info(error, scrub))


def timed_out(message: str) -> Ending:
    """Return the ending of work that did not end in time."""
    error = ErrorInfo(type="TimeoutError", message=message)
    return Ending(Status.FAILED, Reason.TIMED_OUT.value, error=error)


def cancelled(reason: str | None = None, message: str | None = None) -> Ending:
    """Return the ending of a cancellation.

    Args:
        reason: The reason, if the cancellation was requested.
        message: The message, if the work cancelled itself.
    """
    error = ErrorInfo(type="CancelledError", message=message) if message else None
    return Ending(Status.CANCELLED, reason, error=error)


def result_text(value: Any) -> str:
    """Return a tool's result as text. Never raises.

    A string is returned unchanged. Other values become JSON as pydantic writes it (models,
    dataclasses, times, sets …). In this JSON, bytes are base64, and the numbers that JSON lacks are
    the words `NaN` and `Infinity`. If the whole result is bytes, it becomes
    `{"type": "builtins.bytes", "base64": "…"}`.

    Values without a JSON form become `{"type": "module.Class", "repr": "…"}`. Iterators do as well,
    for example generators and open files: reading an iterator would consume it, and may never end.
    """
    if isinstance(value, str):
        # Not str(value): a subclass may override `__str__`.
        return str.__str__(value)
    try:
        if isinstance(value, (bytes, bytearray)):
            return _dumped({"type": _type_name(value), "base64": b64encode(value).decode()})
        snapshot = _snapshot(value, {})
        try:
            return to_json(snapshot, fallback=_described, bytes_mode="base64").decode()
        except (PydanticSerializationError, UnicodeError):
            # Lone surrogates, which UTF-8 cannot encode. JSON's escapes can.
            return _dumped(to_jsonable_python(snapshot, fallback=_described, bytes_mode="base64"))
    except Exception:
        # A cycle, very deep nesting, or a class whose own code fails.
        return _dumped(_described(value))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # Pydantic panics if a value changes while it is serialised.
        return _dumped(_described(value))


def model_view(text: str, limit: int = MODEL_VIEW_CHARACTERS) -> str:
    """Return a result for the model: all of it, or its beginning and its end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[… {left_out} characters left out …]\n{text[-half:]}"


def error_info(error: BaseException, scrub: Callable[[str], str] = str) -> ErrorInfo:
    """Return the class, the message and the stack of an error for its record. Never raises.

    Args:
        error: The error.
        scrub: Removes the values that must not be shown from a text.
    """
    kind = type(error)
    is_known = kind.__module__ == "builtins" or kind.__module__.startswith("tracer.")
    name = kind.__qualname__ if is_known else _type_name(error)
    message = scrub(error_message(error))
    if isinstance(error, ToolError) and error.max_characters is not None:
        message = model_view(message, error.max_characters)
    return ErrorInfo(type=name, message=message, stack=_stack(error, scrub))


def error_message(error: BaseException) -> str:
    """Return an error's message, or its class's name if the message is empty. Never raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__} (its message cannot be read)"


def _stack(error: BaseException, scrub: Callable[[str], str]) -> str | None:
    if error.__traceback__ is None:
        return None
    frames = _own_frames(error.__traceback__)
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except Exception:
        lines = traceback.format_tb(frames)
    # Scrubbed before it is cut: half a secret would not be recognised.
    return scrub("".join(lines))[-STACK_CHARACTERS:]


def _own_frames(frames: TracebackType) -> TracebackType:
    """Return a traceback without the frames of the runtime that precede the tool's first frame."""
    frame: TracebackType | None = frames
    while frame is not None:
        package = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _MACHINERY:
            return frame
        frame = frame.tb_next
    return frames


def _snapshot(value: Any, seen: dict[int, Any]) -> Any:
    """Return a value that cannot change or be consumed while it is serialised.

    Plain values, and containers of only plain values, are returned as they are. Other containers
    are copied, because other code may change them while they are serialised. Iterators are replaced
    by a description.

    Args:
        value: Any value that a tool may return.
        seen: The snapshots made so far, by the `id` of the original: values may contain themselves.
    """
    kind = type(value)
    # The most frequent types first, because every recorded result passes through here.
    if kind is dict or kind is list:
        if _PLAIN.issuperset(map(type, value.values() if kind is dict else value)):
            return value
    elif kind in _PLAIN:
        return value
    elif hasattr(kind, "__next__"):
        return _described(value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = value
    if kind is not dict and isinstance(value, (list, tuple, set, frozenset, deque)):
        snapshot: Any = [_part(each, seen) for each in list(value)]
    else:
        # `dict.items`, as pydantic reads it: a subclass may override `items`.
        parts = dict(dict.items(value)) if isinstance(value, dict) else _named_parts(value)
        snapshot = {name: _part(each, seen) for name, each in parts.items()}
        if not isinstance(value, dict):
            changed = {name: each for name, each in snapshot.items() if each is not parts[name]}
            snapshot = _with_parts(value, changed) if changed else value
    seen[id(value)] = snapshot
    return snapshot


def _part(value: Any, seen: dict[int, Any]) -> Any:
    return value if type(value) in _PLAIN else _snapshot(value, seen)


def _named_parts(value: Any) -> dict[str, Any]:
    """Return the parts of an object that pydantic would serialise, by name."""
    if hasattr(type(value), "__dataclass_fields__"):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    if hasattr(type(value), "__pydantic_serializer__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    return {"value": value.value} if isinstance(value, Enum) else {}


def _with_parts(value: Any, changed: dict[str, Any]) -> Any:
    """Return a copy of a value with some parts replaced.

    The copy is serialised in the same way as the value.
    """
    if not hasattr(type(value), "__pydantic_serializer__"):
        return changed["value"] if isinstance(value, Enum) else {**_named_parts(value), **changed}
    replaced = copy(value)
    extra = getattr(replaced, "__pydantic_extra__", None) or {}
    for name, each in changed.items():
        if name in extra:
            extra[name] = each
        elif hasattr(replaced, "__dict__"):
            vars(replaced)[name] = each  # bypasses `__setattr__`, so frozen models work too
        else:
            object.__setattr__(replaced, name, each)
    return replaced


def _described(value: Any) -> dict[str, str | None]:
    try:
        shown: str | None = repr(value)
    except Exception:
        shown = None
    return {"type": _type_name(value), "repr": shown}


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
