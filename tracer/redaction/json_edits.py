"""Find secrets in JSON text, and return edits that mask them.

msgspec checks whether a text is JSON. A regular expression then finds the tokens and their
positions in the text, without building Python values. The value of each string is examined as a
text of its own, because it may contain JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator

import msgspec

from tracer.records.masks import A_MASK, mask
from tracer.redaction.edits import MASK_WORK, Edit, WorkCounter, within_string
from tracer.redaction.text_rules import IS_SCHEMA

_BEGINNING = re.compile(r"""[ \t\r\n]*[\[{"]""")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

# It takes linear time, because it never backtracks.
_TOKEN = re.compile(
    r"""(?s)"((?:[^"\\]|\\.)*+)"(\s*+:)?|(-?[0-9][0-9.eE+-]*+)|([\[{])|([\]}])|[tfn][a-z]++"""
)
_STRING, _KEY, _NUMBER, _OPENING, _CLOSING = range(1, 6)
"""The groups of `_TOKEN`. A key is a string followed by a colon."""

_NONE = (sys.maxsize, sys.maxsize)

_SCHEMA_CHARACTERS = 4000
"""How many characters of an object are examined to find out whether it is a JSON Schema."""


def is_json(text: str) -> bool:
    """Return whether a text is a JSON object, array or string.

    Returns False for JSON that nests too deeply, so that it is examined as plain text.
    """
    if _BEGINNING.match(text) is None:
        return False
    if "\\u" in text:  # msgspec rejects lone surrogates, which JSON allows
        text = _SURROGATE.sub(r"\\u0020", text)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def json_edits(
    text: str,
    rule_of: Callable[[str], str | None],
    string_edits: Callable[[str], list[Edit]],
    hints: Iterator[tuple[int, int]],
    work: WorkCounter,
) -> tuple[list[Edit], int]:
    """Return the edits that mask the secrets of a JSON text, and the number of tokens read.

    The edits are sorted.

    Args:
        text: A text for which `is_json` is true.
        rule_of: Returns the rule that a key matches; None if values of the key are not secret.
        string_edits: Returns the edits of a string's value, or of a number as text.
        hints: Positions of possible secrets, sorted, without overlaps. A string or number is
            examined only if it overlaps one of them, or is the value of a secret key.
        work: Counts the masks of secret keys. `string_edits` must count its own masks.
    """
    edits: list[Edit] = []
    open_values: list[tuple[int, int, str | None]] = []
    """The objects and arrays around the current token, from the outermost one whose key is secret.
    For each: its start, the number of edits before it, and the rule that its key matches; None if
    its key is not secret."""
    rule: str | None = None
    hint_start, hint_end = next(hints, _NONE)
    count = 0
    for token in _TOKEN.finditer(text):
        count += 1
        start, end = token.span()
        while hint_end <= start:
            hint_start, hint_end = next(hints, _NONE)
        is_hinted = hint_start < end
        if rule is None and not is_hinted and not open_values:
            if hint_start == _NONE[0]:
                break
            continue
        kind = token.lastindex
        if kind == _OPENING:
            if open_values or rule is not None:
                open_values.append((start, len(edits), rule))
        elif kind == _CLOSING:
            if open_values:
                opened, before, outer = open_values.pop()
                if outer is not None and _is_secret(text, opened, end):
                    work.add(MASK_WORK)
                    edits[before:] = [Edit(opened, end, f'"{mask(outer)}"')]
        elif kind == _NUMBER:
            number_rule = rule
            if number_rule is None and is_hinted:
                number_rule = _rule_of_number(token[0], string_edits)
            if number_rule is not None:
                work.add(MASK_WORK)
                edits.append(Edit(start, end, f'"{mask(number_rule)}"'))
        elif kind is not None:
            raw, start = token[1], token.start(1)
            if kind == _STRING and rule is not None:
                if raw.strip() and not A_MASK.fullmatch(raw):
                    work.add(MASK_WORK)
                    edits.append(Edit(start, start + len(raw), mask(rule)))
            elif is_hinted:
                value = json.loads(f'"{raw}"', strict=False) if "\\" in raw else raw
                edits += within_string(raw, string_edits(value), start)
                if kind == _KEY:
                    rule = rule_of(value)
                    continue
        rule = None
    return edits, count


def _is_secret(text: str, start: int, end: int) -> bool:
    """Return whether an object or array may be secret.

    It is not secret if it is empty or a JSON Schema.
    """
    if not text[start + 1 : min(end, start + 40) - 1].strip():
        return False
    return IS_SCHEMA.search(text, start, min(end, start + _SCHEMA_CHARACTERS)) is None


def _rule_of_number(number: str, string_edits: Callable[[str], list[Edit]]) -> str | None:
    """Return the rule that recognizes a number as a secret; None if the number is not secret.

    A number that ends with `.0` is also examined without this ending.
    """
    forms = [number]
    if number.endswith(".0"):
        forms.append(number[:-2])
    for form in forms:
        if edits := string_edits(form):
            return edits[0].replacement.removeprefix("[masked: ").removesuffix("]")
    return None
