"""Where secrets were masked: the masks in a record's texts say it themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
from pydantic.alias_generators import to_camel

from tracer.redaction import MASK
from tracer.text import escape, most_json_values

MOST_PLACES = 100
"""Of a text with more masks than that, the text itself is the place."""

_MOST_OF_A_PLACE = 500
_MOST_VALUES = 1_000_000
"""JSON with more is not read: it would take 100 MB or more of memory."""


def masked_places(fields: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return where the fields of a record have masks, sorted.

    A place is a field's name, and in a field that is JSON also the place within, as a JSON pointer
    (RFC 6901): `arguments:/headers/0`.

    Args:
        fields: Some fields of a record.
        names: Which of them to look at: text, or lists of text.
    """
    places: set[str] = set()
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            if MASK in value:
                places.update(_places_in(to_camel(name), value))
        elif any(MASK in item for item in value):
            places.add(to_camel(name))
    return sorted(places)


def _places_in(name: str, text: str) -> Iterator[str]:
    value = _parsed(text)
    if not isinstance(value, (dict, list)):
        yield name
        return
    found = list(islice(_pointers(value), MOST_PLACES + 1))
    if not found or len(found) > MOST_PLACES or max(map(len, found)) > _MOST_OF_A_PLACE:
        yield name
        return
    yield from (f"{name}:{escape(pointer)}" for pointer in found)


def _pointers(value: Any) -> Iterator[str]:
    """Yield where JSON has masks; of a place with too long a name only its beginning.

    Takes no more memory than it is deep: what is large has a place for each of its texts.
    """
    waiting = [("", iter(_items(value)))]
    while waiting:
        pointer, items = waiting[-1]
        for key, item in items:
            if MASK in key or (isinstance(item, str) and MASK in item):
                yield _below(pointer, key)
            elif isinstance(item, (dict, list)):
                waiting.append((_below(pointer, key), iter(_items(item))))
                break
        else:
            waiting.pop()


def _below(pointer: str, key: str) -> str:
    whole = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
    return whole[: _MOST_OF_A_PLACE + 1]


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    return ((str(index), item) for index, item in enumerate(value))


def _parsed(text: str) -> Any:
    """Return the value of JSON text; None if it is not JSON, too deep or too large."""
    if most_json_values(text) > _MOST_VALUES:
        return None
    for loads in (orjson.loads, json.loads):
        try:
            return loads(text)
        except (ValueError, RecursionError):
            continue
    return None
