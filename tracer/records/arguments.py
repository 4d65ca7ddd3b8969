"""Compare the arguments of tool calls: JSON as values, anything else as text."""

from __future__ import annotations

from typing import Any

import orjson

from tracer.text import nests_too_deep


def parsed(value: Any) -> Any:
    """Return the value of JSON text. Other values and invalid JSON are returned unchanged."""
    if not isinstance(value, str) or value[:1] not in ("{", "[", '"') or nests_too_deep(value):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def canonical(arguments: str | None) -> bytes | None:
    """Return arguments in canonical form: arguments with equal content give equal bytes."""
    if arguments is None:
        return None
    value = parsed(arguments)
    if value is not arguments:
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError, RecursionError):
            pass
    return b"text:" + arguments.encode(errors="surrogatepass")


def same_arguments(one: str | None, other: str | None) -> bool:
    """Return whether the arguments of two calls have equal content."""
    return canonical(one) == canonical(other)


class Canonical(dict[str | None, bytes | None]):
    """A cache of `canonical`: maps arguments to their canonical form."""

    def __missing__(self, arguments: str | None) -> bytes | None:
        text = self[arguments] = canonical(arguments)
        return text


def strings_in(arguments: str | None) -> set[str]:
    """Return all texts inside the arguments, without surrounding white space.

    If the arguments are not JSON, they count as one text.
    """
    if arguments is None:
        return set()
    strings: set[str] = set()
    waiting: list[Any] = [parsed(arguments)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and value.strip():
            strings.add(value.strip())
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return strings


class Texts(dict[str | None, frozenset[str]]):
    """A cache of `strings_in`: maps arguments to the texts inside them."""

    def __missing__(self, arguments: str | None) -> frozenset[str]:
        strings = self[arguments] = frozenset(strings_in(arguments))
        return strings
