"""Comparing what calls were given: JSON by its content, anything else by its text."""

from __future__ import annotations

from typing import Any

import orjson

from tracer.otel.dialects.reading import parsed


def canonical(arguments: str | None) -> bytes | None:
    """Return arguments in a form that is the same for the same content."""
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
    """Return whether two calls were given the same."""
    return canonical(one) == canonical(other)


class Canonical(dict[str | None, bytes | None]):
    """Arguments in that form, each found when it is first asked for."""

    def __missing__(self, arguments: str | None) -> bytes | None:
        found = self[arguments] = canonical(arguments)
        return found


def strings_in(arguments: str | None) -> set[str]:
    """Return every text among the arguments, stripped; what is no JSON is one text."""
    if arguments is None:
        return set()
    found: set[str] = set()
    waiting: list[Any] = [parsed(arguments)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and value.strip():
            found.add(value.strip())
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


class Texts(dict[str | None, frozenset[str]]):
    """The result of `strings_in` by arguments, each computed when it is first asked for."""

    def __missing__(self, arguments: str | None) -> frozenset[str]:
        found = self[arguments] = frozenset(strings_in(arguments))
        return found
