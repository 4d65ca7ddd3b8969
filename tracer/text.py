"""Text that Postgres and JSON cannot hold, and the one reversible escape for it.

Postgres has no NUL in text and UTF-8 has no lone surrogates, yet tools return both. In stored
form such a character is written as `␛` (U+241B, SYMBOL FOR ESCAPE) and its four lowercase hex
digits: NUL is `␛0000`, U+D800 is `␛d800`. A `␛` that is followed by four hex digits is itself
written `␛241b`; any other `␛` stays as it is. Events, records, the database and the REST JSON all
hold strings in stored form; only the recorder meets real ones. `docs/protocol.md` has the rule
for other languages.
"""

from __future__ import annotations

import re
from itertools import islice

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_TO_ESCAPE = re.compile("[\0\ud800-\udfff]|\u241b(?=[0-9a-f]{4})")
_ESCAPED = re.compile("\u241b(0000|d[89a-f][0-9a-f]{2}|241b)")
_CUT_ESCAPE = re.compile("\u241b[0-9a-f]{0,3}$")

PREVIEW_BYTES = 2048
"""How much of a long string a preview keeps, in UTF-8 bytes."""

MAX_JSON_DEPTH = 512
"""Deeper JSON is kept as text only: parsers recurse, and Postgres's stack is bounded."""


def _code(match: re.Match[str]) -> str:
    return f"\u241b{ord(match[0]):04x}"


def is_plain(text: str) -> bool:
    """Return whether text is its own stored form for a reason that is quickly found."""
    if text.isascii():
        return "\0" not in text
    if "\0" in text or "\u241b" in text:
        return False
    try:
        text.encode()  # much quicker than to look for surrogates
    except UnicodeEncodeError:
        return False
    return True


def escape(text: str) -> str:
    """Return the stored form of any Python string. Inverse of `unescape`."""
    if is_plain(text):
        return text
    return _TO_ESCAPE.sub(_code, text)


def unescape(stored: str) -> str:
    """Return the Python string whose stored form this is."""
    if "\u241b" not in stored:
        return stored
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), stored)


def storable(text: str) -> str:
    """Return `text` fit to be stored: what is in stored form already comes back unchanged.

    For strings that come from outside in stored form, as an HTTP client's do: a raw NUL or lone
    surrogate among them is escaped, an escape is left alone. Idempotent.
    """
    if is_plain(text):
        return text
    return _UNSTORABLE.sub(_code, text)


def preview(text: str, limit: int = PREVIEW_BYTES) -> str:
    """Return at most the first `limit` UTF-8 bytes of a stored string, cut between characters."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    return _CUT_ESCAPE.sub("", data[:limit].decode(errors="ignore"))


def beginning(text: str, characters: int) -> str:
    """Return at most the first `characters` characters of a stored string."""
    return text if len(text) <= characters else _CUT_ESCAPE.sub("", text[:characters])


def first_line(text: str, characters: int) -> str | None:
    """Return the first line of a stored string that is not blank; `…` ends it if it is cut.

    Returns:
        None if all lines are blank.
    """
    line = next((line.strip() for line in text.lstrip()[: 4 * characters].splitlines()), "")
    if len(line) > characters:
        line = beginning(line, characters - 1).rstrip() + "…"
    return line or None


def nests_too_deep(text: str, limit: int = MAX_JSON_DEPTH) -> bool:
    """Return whether JSON text nests arrays and objects deeper than `limit`.

    Brackets within strings do not count. Malformed text gets some answer, never an error.
    """
    if len(text) <= limit or text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for match in _BRACKETS_OUTSIDE_STRINGS.finditer(text):
        bracket = match[0]
        if bracket in "[{":
            depth += 1
            if depth > limit:
                return True
        elif bracket in "]}":
            depth -= 1
    return False


def without_deep_values(text: str, limit: int) -> str:
    """Return JSON text with `null` in place of each array and object deeper than `limit`.

    Malformed text above the limit stays malformed.
    """
    parts: list[str] = []
    depth = start = 0
    for match in _BRACKETS_OUTSIDE_STRINGS.finditer(text):
        bracket = match[0]
        if bracket in "[{":
            if depth == limit:
                parts += (text[start : match.start()], "null")
            depth += 1
        elif bracket in "]}":
            depth -= 1
            if depth == limit:
                start = match.end()
    if depth <= limit:
        parts.append(text[start:])
    return "".join(parts)


_BRACKETS_OUTSIDE_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def most_json_values(json: bytes | str) -> int:
    """Return how many values JSON may hold at most, without reading it."""
    if isinstance(json, str):
        return sum(map(json.count, "{[,"))
    return sum(map(json.count, _BEFORE_VALUES))


def has_more_json_values(json: bytes, limit: int) -> bool:
    """Return whether JSON holds more than `limit` values, without reading it.

    Text within strings does not count. Malformed text gets some answer, never an error.
    """
    if most_json_values(json) <= limit:
        return False
    return next(islice(_BEFORE_VALUE.finditer(json), limit, None), None) is not None


_BEFORE_VALUE = re.compile(rb'(?:[^"{\[,]++|"(?:[^"\\]++|\\.)*+"?)*+[{\[,]', re.DOTALL)
"""Finds each bracket or comma that is not in a string."""

_BEFORE_VALUES = (b"{", b"[", b",")
"""Each value comes after one of them, at the latest after its name."""
