"""Read JSON that is not strict: with `NaN`, written by Python's `repr`, nested or cut off."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import orjson

from tracer.text import nests_too_deep

_MOST_NESTED = 3
"""The number of times that JSON may be encoded inside a JSON string."""
_MOST_LITERAL = 100_000
"""Python literals above this number of characters are not read, because reading them is slow."""
_MOST_CUTS = 20
"""The number of positions at which cut JSON is closed, from the end."""
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|"', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")


def read_json(value: Any) -> Any:
    """Return the value of JSON text, as far as it can be read; any other value unchanged.

    The text may contain `NaN` and `Infinity`, may be the `repr` of a Python value, may be JSON
    inside a JSON string, and may be cut off by a length limit. Of cut text, everything before the
    cut is returned.
    """
    for _ in range(_MOST_NESTED):
        if not isinstance(value, str) or value[:1] not in ("{", "[", '"'):
            return value
        found = _value_of(value)
        if found is value:
            return value
        value = found
    return value


def _value_of(text: str) -> Any:
    if nests_too_deep(text):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    if text[0] == '"':
        return text
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    if len(text) <= _MOST_LITERAL:
        try:
            found = ast.literal_eval(text)
            return found if isinstance(found, list | dict) else text
        except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return _value_before_cut(text)


def _value_before_cut(text: str) -> Any:
    """Return the value of JSON text whose end is missing; `text` itself if it is no JSON."""
    stack: list[str] = []
    ends: list[tuple[int, str]] = []  # positions at which a value is complete, with what closes it
    unclosed = False
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in _CLOSERS:
            stack.append(_CLOSERS[token])
            ends.append((match.end(), "".join(reversed(stack))))
        elif token in ("}", "]"):
            if not stack or stack.pop() != token:
                return text
            ends.append((match.end(), "".join(reversed(stack))))
        elif token == ",":
            ends.append((match.start(), "".join(reversed(stack))))
        elif token == '"':
            unclosed = True
            break
    closed = "".join(reversed(stack))
    if unclosed:
        tail = _CUT_ESCAPE.sub("", text) + '"' + closed
        if (found := _loaded(tail)) is not None:
            return found
    for end, closers in reversed(ends[-_MOST_CUTS:]):
        if (found := _loaded(text[:end] + closers)) is not None:
            return found
    return text


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
