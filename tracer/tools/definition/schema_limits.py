"""Limits of a JSON Schema that somebody else wrote: how long checking against it may take.

A schema can be small and still take for ever: thirty definitions that each refer to the next one
twice make a billion checks of a single value. References that come back to where they began are
harmless, since validators notice them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 512 * 1024
"""How large a schema may be, as JSON."""

MAX_CHECKS = 10_000
"""How many subschemas one value may be held against."""

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose subschemas are held against the same value (JSON Schema 2020-12, section 10.2)."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_limits(schema: dict[str, Any]) -> None:
    """Return if a schema is within the limits.

    Raises:
        ValueError: It is no JSON, too large, nested too deeply, or a value would have to be held
            against too many of its parts.
    """
    try:
        size = len(json.dumps(schema))
        if size > MAX_BYTES:
            raise ValueError(f"it has {size} bytes, of {MAX_BYTES} at most")
        costs = _Costs(schema)
        if any(costs.of(part) > MAX_CHECKS for part in _parts(schema)):
            raise ValueError(
                "its references multiply: a value would be held against too many parts"
            )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except TypeError as error:
        # TOML knows dates, for example.
        raise ValueError(f"it has to be JSON: {error}. Write such a value as text.") from error


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and everything in it that may be one."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _parts(each)


class _Costs:
    """How many subschemas a value is held against, by subschema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key not in self._known:
            self._known[key] = 0  # one that comes back to itself adds nothing
            below = sum(self.of(each) for each in self._in_place(schema))
            self._known[key] = min(1 + below, MAX_CHECKS + 1)
        return self._known[key]

    def _in_place(self, schema: dict[str, Any]) -> Iterator[Any]:
        for keyword in _IN_PLACE:
            each = schema.get(keyword)
            if isinstance(each, list):
                yield from each
            elif keyword == "dependentSchemas" and isinstance(each, dict):
                yield from each.values()
            elif each is not None:
                yield each
        for keyword in _REFERENCES:
            if isinstance(schema.get(keyword), str):
                yield self._referred(schema[keyword])

    def _referred(self, reference: str) -> Any:
        """Return what a reference within the schema points at; None where it is another's."""
        path = reference.removeprefix("#")
        found: Any = self._root
        for part in path.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict):
                found = found.get(name)
            else:
                return None
        return found
