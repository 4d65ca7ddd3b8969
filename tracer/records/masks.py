"""Masks: the texts in place of secrets, and in place of payloads that are not stored.

`tracer.redaction` creates them. Readers of a record learn from the paths of its masks which values
were masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any

import orjson
from pydantic.alias_generators import to_camel

from tracer.text import PREVIEW_BYTES, escape, most_json_values, nests_too_deep, preview

MASK = "[masked: "
"""The beginning of every mask."""

A_MASK = re.compile(r"\[masked: [a-z0-9_]{1,40}\]")

NOT_KEPT = r"\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z"
"""Matches the mask at the end of a payload that is not stored completely. The group is the size of
the whole payload. Python and Postgres both accept this regular expression."""

MARK_CHARACTERS = 60
"""The largest length of a mask that `NOT_KEPT` matches."""

END_OF_MARK = " bytes]"

MAX_PATHS = 100
"""A text with more masks is listed by its field's name alone."""

_MAX_PATH_CHARACTERS = 500
_MAX_VALUES = 1_000_000
"""JSON with more values is not parsed, because that would take 100 MB of memory or more."""

_NOT_KEPT = re.compile(NOT_KEPT)


def mask(rule: str) -> str:
    """Return the mask for a secret: `[masked: RULE]`."""
    return f"{MASK}{rule}]"


def payload_mark(size: int) -> str:
    """Return the mask for a whole payload of `size` bytes."""
    return f"[masked: payload of {size} bytes]"


def not_kept(text: str) -> re.Match[str] | None:
    """Match the mask at the end of a payload that is not stored completely, as `NOT_KEPT` does.

    Returns None if the text has no such mask.
    """
    return _NOT_KEPT.search(text[-MARK_CHARACTERS:]) if text.endswith(END_OF_MARK) else None


def masked_paths(fields: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the paths of all masks in a record's fields, sorted.

    A path is the name of a field. If the field contains JSON, a JSON pointer (RFC 6901) follows:
    `arguments:/headers/0`.

    Args:
        fields: Some fields of a record.
        names: The fields to search. Each holds a text or a list of texts.
    """
    paths: set[str] = set()
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            if MASK in value:
                paths.update(_paths_in(to_camel(name), value))
        elif any(MASK in item for item in value):
            paths.add(to_camel(name))
    return sorted(paths)


def _paths_in(name: str, text: str) -> Iterator[str]:
    value = _parsed(text)
    if not isinstance(value, (dict, list)):
        yield name
        return
    pointers = list(islice(_pointers(value), MAX_PATHS + 1))
    is_long = bool(pointers) and max(map(len, pointers)) > _MAX_PATH_CHARACTERS
    if not pointers or len(pointers) > MAX_PATHS or is_long:
        yield name
        return
    yield from (f"{name}:{escape(pointer)}" for pointer in pointers)


def _pointers(value: Any) -> Iterator[str]:
    """Yield JSON pointers to the masks in a value.

    Pointers that are too long are shortened. The memory used grows with the depth of the value, not
    with its size.
    """
    stack = [("", iter(_items(value)))]
    while stack:
        pointer, items = stack[-1]
        for key, item in items:
            if MASK in key or (isinstance(item, str) and MASK in item):
                yield _child(pointer, key)
            elif isinstance(item, (dict, list)):
                stack.append((_child(pointer, key), iter(_items(item))))
                break
        else:
            stack.pop()


def _child(pointer: str, key: str) -> str:
    child = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
    return child[: _MAX_PATH_CHARACTERS + 1]


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    return ((str(index), item) for index, item in enumerate(value))


def _parsed(text: str) -> Any:
    """Parse JSON text. Return None if it is not JSON, nests too deeply or is too large."""
    if most_json_values(text) > _MAX_VALUES:
        return None
    for loads in (orjson.loads, json.loads):
        try:
            return loads(text)
        except (ValueError, RecursionError):
            continue
    return None


# --- Payload policies: a project stores payloads whole, only their beginning, or only their size.
#
# Payloads are arguments, results, messages and other long texts. A payload that is not stored
# becomes `[masked: payload of 48213 bytes]`. If only the beginning is stored, the text is the first
# 2 kB, followed by `[masked: rest of 48213 bytes]`. In both masks, the number is the size of the
# whole payload. JSON that nests too deep is shortened under every policy.


class PayloadPolicy(StrEnum):
    """How much of arguments, results, messages and other payloads is stored."""

    KEEP = "keep"
    """Store the whole text."""
    PREVIEW = "preview"
    """Store the beginning of the text, and its size."""
    DROP = "drop"
    """Store only the size of the text."""


WHOLE_TEXTS = frozenset(
    "arguments effective_arguments result state_changes thought messages title"
    " user_request request summary parameters offered_tools run_metadata message stack"
    " error_message error_stack".split()
)
"""Fields in which secrets are recognised by their keys (`password=…`) and by their form (`ghp_…`).
In all other fields, secrets are recognised by their form only."""

PAYLOAD_TEXTS = WHOLE_TEXTS - {"title", "message", "error_message", "run_metadata"}
"""The fields of events and records that are payloads. Titles, error messages and metadata are
not."""


def stored_payload(text: str, policy: PayloadPolicy) -> str:
    """Return the text to store for a payload. A second call does not change the result."""
    if policy is PayloadPolicy.KEEP or not text:
        return text
    if policy is PayloadPolicy.DROP:
        return f"[masked: payload of {size_of(text)} bytes]"
    size = len(text.encode())
    # A text that is longer is not a preview, even if it ends with a size mark.
    limit = PREVIEW_BYTES + (MARK_CHARACTERS if not_kept(text) else 0)
    return text if size <= limit else f"{_beginning(text)}[masked: rest of {size} bytes]"


def within_depth(text: str | None) -> str | None:
    """Return a payload; if it nests more than 512 levels, only its beginning.

    The result has at most about 2,000 levels. Postgres's parser raises an error at some thousand
    levels, even in `pg_input_is_valid`. Views of tool calls could then not be read.
    """
    if text is None or not nests_too_deep(text):
        return text
    return stored_payload(text, PayloadPolicy.PREVIEW)


def size_of(text: str) -> int:
    """Return the size of a payload in bytes. For a shortened payload, this is its original size."""
    mark = not_kept(text)
    return int(mark[1]) if mark is not None else len(text.encode())


def _beginning(text: str) -> str:
    """Return the beginning of a text. A mask that would be cut in two is omitted."""
    beginning = preview(text)
    at = beginning.rfind("[")
    cut = A_MASK.match(text, at) if at >= 0 else None
    return beginning if cut is None or cut.end() <= len(beginning) else beginning[:at]
