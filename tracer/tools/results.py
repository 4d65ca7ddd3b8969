"""What a tool returned or raised, as text that can be recorded and shown to a model."""

from __future__ import annotations

import json
import traceback
from base64 import b64encode
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from tracer.errors import ToolError
from tracer.events import ErrorInfo

MODEL_VIEW_CHARACTERS = 64_000
"""How much of a result a model is shown; the record has all of it."""

STACK_CHARACTERS = 20_000
"""How much of an error's stack is kept, from its end."""

_RUN_OUT = (GeneratorType, AsyncGeneratorType, CoroutineType)
"""Values that are used up by looking at them, and may never end."""


_MACHINERY = frozenset({"anyio", "asyncio", "concurrent", "tenacity", "tracer"})
"""The packages that a call goes through on its way to the tool."""


def result_text(value: Any) -> str:
    """Return a tool's result as text. Never raises.

    A string stays exactly as it is. Anything else becomes JSON as pydantic writes it (models,
    dataclasses, times, sets …), with `NaN` and `Infinity` as these words and bytes in base64;
    bytes by themselves are `{"type": "builtins.bytes", "base64": "…"}`. What JSON has no form for
    is described: `{"type": "module.Class", "repr": "…"}`.
    """
    if isinstance(value, str):
        # A subclass's own `__str__` does not count: a string is what it holds.
        return str.__str__(value)
    try:
        if isinstance(value, (bytes, bytearray)):
            return _dumped({"type": _type_name(value), "base64": b64encode(value).decode()})
        if isinstance(value, _RUN_OUT):
            return _dumped(_described(value))
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
