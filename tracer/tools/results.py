"""What a tool returned or raised, as text that can be recorded and shown to a model."""

from __future__ import annotations

import json
import traceback
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from operator import is_not
from types import TracebackType
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from tracer.errors import ToolError
from tracer.events import ErrorInfo

MODEL_VIEW_CHARACTERS = 64_000
"""How much of a result a model is shown; the record has all of it."""

STACK_CHARACTERS = 20_000
"""How much of an error's stack is kept, from its end."""

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""The types of most values, which hold nothing else."""

_MACHINERY = frozenset({"anyio", "asyncio", "concurrent", "tenacity", "tracer"})
"""The packages that a call goes through on its way to the tool."""


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
        value = _without_iterators(value, {})
        try:
            return to_json(value, fallback=_described, bytes_mode="base64").decode()
        except (PydanticSerializationError, UnicodeError):
            # Lone surrogates: UTF-8 has none, JSON's escapes do.
            return _dumped(to_jsonable_python(value, fallback=_described, bytes_mode="base64"))
    except Exception:
        # A circle, endless nesting, or a class whose own code fails.
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


def _without_iterators(value: Any, seen: dict[int, Any]) -> Any:
    """Return a value with a description in the place of each iterator; itself where it has none.

    Args:
        value: Whatever a tool may return.
        seen: What became of the parts that were looked at, by their `id`: some hold themselves.
    """
    kind = type(value)
    # The usual ones first: all that is recorded comes through here.
    if kind is dict or kind is list:
        parts = value.values() if kind is dict else value
        if _PLAIN.issuperset(map(type, parts)):
            return value
    elif kind in _PLAIN:
        return value
    elif hasattr(kind, "__next__"):
        return _described(value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = value
    is_list = kind is not dict and isinstance(value, (list, tuple, set, frozenset, deque))
    named = value if kind is dict or is_list else _named_parts(value)
    parts = list(value if is_list else named.values())
    told = [each if type(each) in _PLAIN else _without_iterators(each, seen) for each in parts]
    if any(map(is_not, told, parts)):
        seen[id(value)] = told if is_list else dict(zip(named, told, strict=True))
    return seen[id(value)]


def _named_parts(value: Any) -> dict[Any, Any]:
    """Return what pydantic would write of a value that has names for its parts."""
    if isinstance(value, dict):
        return value
    if hasattr(type(value), "__dataclass_fields__"):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    if hasattr(type(value), "__pydantic_serializer__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    return {"value": value.value} if isinstance(value, Enum) else {}


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
