"""How calls, steps and plans end, and their results and errors as text for records and models.

The failure of a tool is data: it raises no error of ours.
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
"""How much of a result a model is shown; the record has all of it."""

STACK_CHARACTERS = 20_000
"""How much of an error's stack is kept, from its end."""

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""The types of most values, which hold nothing else."""

_MACHINERY = frozenset({"anyio", "asyncio", "concurrent", "tenacity", "tracer"})
"""The packages that a call goes through on its way to the tool."""


_REASON = re.compile("[a-z][a-z0-9_]{0,63}")

EndingStatus = Literal[Status.CANCELLED, Status.FAILED, Status.SUCCEEDED]


class EndingFields(TypedDict):
    """The fields that the events of all kinds of ending share."""

    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How something ended."""

    status: EndingStatus
    reason: str | None = None
    """One of `Reason`, or a tool's own."""
    result: str | None = None
    """The result."""
    error: ErrorInfo | None = None

    @property
    def fields(self) -> EndingFields:
        """The fields of the event that records it, the result aside."""
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
    """Return the ending of a success with `result`."""
    return Ending(Status.SUCCEEDED, result=result)


def failed(
    error: BaseException, reason: Reason | None = None, scrub: Callable[[str], str] = str
) -> Ending:
    """Return the ending of what raised `error`.

    Args:
        error: The error.
        reason: The kind of failure. By default it is the reason of the error if that is a
            `ToolError` or a `LineageError`; any other is a tool's.
        scrub: Removes the values that must not be shown from a text.
    """
    if reason is not None:
        return Ending(Status.FAILED, reason.value, error=error_info(error, scrub))
    told = error.reason if isinstance(error, (ToolError, LineageError)) else ""
    known = told if _REASON.fullmatch(told) else Reason.TOOL_ERROR.value
    return Ending(Status.FAILED, known, error=error_info(error, scrub))


def timed_out(message: str) -> Ending:
    """Return the ending of what did not end in time."""
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

    A string stays exactly as it is. Anything else becomes JSON as pydantic writes it (models,
    dataclasses, times, sets …), with `NaN` and `Infinity` as these words and bytes in base64;
    bytes by themselves are `{"type": "builtins.bytes", "base64": "…"}`. What JSON has no form for
    is described: `{"type": "module.Class", "repr": "…"}`. So is an iterator wherever it is, such as
    a generator, an open file or a stream: to look into it would use it up, and may never end.
    """
    if isinstance(value, str):
        # A subclass's own `__str__` does not count: a string is what it holds.
        return str.__str__(value)
    try:
        if isinstance(value, (bytes, bytearray)):
            return _dumped({"type": _type_name(value), "base64": b64encode(value).decode()})
        quiet = _at_rest(value, {})
        try:
            return to_json(quiet, fallback=_described, bytes_mode="base64").decode()
        except (PydanticSerializationError, UnicodeError):
            # Lone surrogates: UTF-8 has none, JSON's escapes do.
            return _dumped(to_jsonable_python(quiet, fallback=_described, bytes_mode="base64"))
    except Exception:
        # A circle, endless nesting, or a class whose own code fails.
        return _dumped(_described(value))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # Pydantic's, where something changed that was not at rest after all.
        return _dumped(_described(value))


def model_view(text: str, limit: int = MODEL_VIEW_CHARACTERS) -> str:
    """Return a result as a model is shown it: whole, or its beginning and its end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[… {left_out} characters left out …]\n{text[-half:]}"


def error_info(error: BaseException, scrub: Callable[[str], str] = str) -> ErrorInfo:
    """Return what is recorded of an error: its class, its words and its stack. Never raises.

    Args:
        error: The error.
        scrub: Takes out of a text what must not be shown.
    """
    kind = type(error)
    is_known = kind.__module__ == "builtins" or kind.__module__.startswith("tracer.")
    name = kind.__qualname__ if is_known else _type_name(error)
    message = scrub(error_message(error))
    if isinstance(error, ToolError) and error.max_characters is not None:
        message = model_view(message, error.max_characters)
    return ErrorInfo(type=name, message=message, stack=_stack(error, scrub))


def error_message(error: BaseException) -> str:
    """Return an error's words, or its class where it has none. Never raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__} (its message can't be read)"


def _stack(error: BaseException, scrub: Callable[[str], str]) -> str | None:
    if error.__traceback__ is None:
        return None
    frames = _own_frames(error.__traceback__)
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except Exception:
        lines = traceback.format_tb(frames)
    # Before it is cut: half of what is to be taken out would not be found.
    return scrub("".join(lines))[-STACK_CHARACTERS:]


def _own_frames(frames: TracebackType) -> TracebackType:
    """Return the frames from the tool's first one on: those before are the same for any tool."""
    found: TracebackType | None = frames
    while found is not None:
        package = str(found.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _MACHINERY:
            return found
        found = found.tb_next
    return frames


def _at_rest(value: Any, seen: dict[int, Any]) -> Any:
    """Return a value that nobody changes or uses up meanwhile; itself where it holds nothing.

    In the place of each iterator is a description. What holds other than plain values is a copy: to
    write those may run code that is not ours, and other threads meanwhile.

    Args:
        value: Whatever a tool may return.
        seen: What became of the parts that were looked at, by their `id`: some hold themselves.
    """
    kind = type(value)
    # The usual ones first: all that is recorded comes through here.
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
        made: Any = [_part(each, seen) for each in list(value)]
    else:
        # As pydantic reads it, whatever a subclass says of itself.
        named = dict(dict.items(value)) if isinstance(value, dict) else _named_parts(value)
        made = {name: _part(each, seen) for name, each in named.items()}
        if not isinstance(value, dict):
            changed = {name: each for name, each in made.items() if each is not named[name]}
            made = _with_parts(value, changed) if changed else value
    seen[id(value)] = made
    return made


def _part(value: Any, seen: dict[int, Any]) -> Any:
    return value if type(value) in _PLAIN else _at_rest(value, seen)


def _named_parts(value: Any) -> dict[str, Any]:
    """Return what pydantic would write of a value that has names for its parts."""
    if hasattr(type(value), "__dataclass_fields__"):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    if hasattr(type(value), "__pydantic_serializer__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    return {"value": value.value} if isinstance(value, Enum) else {}


def _with_parts(value: Any, changed: dict[str, Any]) -> Any:
    """Return a copy of a value with other parts, that is written as the value would be."""
    if not hasattr(type(value), "__pydantic_serializer__"):
        return changed["value"] if isinstance(value, Enum) else {**_named_parts(value), **changed}
    made = copy(value)
    more = getattr(made, "__pydantic_extra__", None) or {}
    for name, each in changed.items():
        if name in more:
            more[name] = each
        elif hasattr(made, "__dict__"):
            vars(made)[name] = each  # nobody is told, frozen or not
        else:
            object.__setattr__(made, name, each)
    return made


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
