"""Stored form: a reversible escape for characters that Postgres and JSON cannot contain.

Tools may return NUL characters and lone surrogates. Postgres rejects NUL in text, and UTF-8 cannot
encode lone surrogates. In stored form, such a character is `␛` (U+241B, SYMBOL FOR ESCAPE) followed
by four lowercase hex digits. NUL becomes `␛0000`, U+D800 becomes `␛d800`. A `␛` that four hex
digits follow becomes `␛241b`; any other `␛` is unchanged.

Strings in events, records, the database and the REST API are in stored form. Only the recorder
processes unescaped strings. `docs/reference/protocol.md` describes the escape for other languages.
"""

from __future__ import annotations

import re
from itertools import islice

from tracer.errors import TooLarge

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_TO_ESCAPE = re.compile("[\0\ud800-\udfff]|\u241b(?=[0-9a-f]{4})")
_ESCAPED = re.compile("\u241b(0000|d[89a-f][0-9a-f]{2}|241b)")
_DATA = re.compile(r"(data:[\w.+-]+/[\w.+-]+(?:;[\w.=+-]+)*;base64,)[A-Za-z0-9+/=\\]{64,}")
_CUT_ESCAPE = re.compile("\u241b[0-9a-f]{0,3}$")

PREVIEW_BYTES = 2048
"""The largest length of a preview in UTF-8 bytes."""

EXCERPT_BYTES = 128
"""The largest length of what a tool call returned or changed in an excerpt: what a row shows."""

MAX_JSON_VALUES = 1_000_000
"""The largest number of values in JSON text from a client. A value takes 60 to 200 bytes of memory
after parsing, but may take only 2 bytes in the text."""

MAX_JSON_DEPTH = 512
"""Deeper JSON is not parsed, because parsers recurse and Postgres's stack is limited."""


def _code(match: re.Match[str]) -> str:
    return f"\u241b{ord(match[0]):04x}"


def is_plain(text: str) -> bool:
    """Return True if the stored form of a text is the text itself. This is a quick check."""
    if text.isascii():
        return "\0" not in text
    if "\0" in text or "\u241b" in text:
        return False
    try:
        text.encode()  # much faster than a search for surrogates
    except UnicodeEncodeError:
        return False
    return True


def escape(text: str) -> str:
    """Return the stored form of a Python string. Inverse of `unescape`."""
    if is_plain(text):
        return text
    return _TO_ESCAPE.sub(_code, text)


def unescape(stored: str) -> str:
    """Return the Python string that a stored form represents. Inverse of `escape`."""
    if "\u241b" not in stored:
        return stored
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), stored)


def storable(text: str) -> str:
    """Return the stored form of a string from an HTTP client, which may be in stored form already.

    NUL and lone surrogates are escaped. Existing escapes are not escaped again.
    """
    if is_plain(text):
        return text
    return _UNSTORABLE.sub(_code, text)


def preview(text: str, limit: int = PREVIEW_BYTES) -> str:
    """Return the beginning of a stored string, at most `limit` bytes of UTF-8.

    No character is cut in two.
    """
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    return _CUT_ESCAPE.sub("", data[:limit].decode(errors="ignore"))


def without_data(text: str) -> str:
    """Return a text in which the data of each `data:` URI is replaced by `…`."""
    return _DATA.sub(r"\1…", text) if ";base64," in text else text


def beginning(text: str, characters: int) -> str:
    """Return at most the first `characters` characters of a stored string."""
    return text if len(text) <= characters else _CUT_ESCAPE.sub("", text[:characters])


def first_line(text: str, characters: int) -> str | None:
    """Return the first line of a stored string that is not blank.

    A line that is longer than `characters` is cut and ends with `…`.

    Returns:
        The line; None if all lines are blank.
    """
    line = next((line.strip() for line in text.lstrip()[: 4 * characters].splitlines()), "")
    if len(line) > characters:
        line = beginning(line, characters - 1).rstrip() + "…"
    return line or None


def nests_too_deep(text: str, limit: int = MAX_JSON_DEPTH) -> bool:
    """Return whether JSON text nests arrays and objects deeper than `limit` levels.

    Brackets inside strings are ignored. For malformed text, the result is arbitrary, but no error
    is raised.
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
    """Return JSON text with `null` in place of each array and object below `limit` levels.

    If the rest of the text is malformed, the result is malformed, too.
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
    """Return an upper bound of the number of values in JSON text, without parsing it."""
    if isinstance(json, str):
        return sum(map(json.count, "{[,"))
    return sum(map(json.count, _BEFORE_VALUES))


def check_json_values(json: bytes) -> None:
    """Check the number of values in JSON text, without parsing it. Text inside strings is ignored.

    Raises:
        TooLarge: The text has more than `MAX_JSON_VALUES` values. If it is malformed, any text with
            so many brackets and commas may raise this.
    """
    if most_json_values(json) <= MAX_JSON_VALUES:
        return
    if next(islice(_BEFORE_VALUE.finditer(json), MAX_JSON_VALUES, None), None) is not None:
        raise TooLarge(
            f"A body may contain at most {MAX_JSON_VALUES} JSON values. Send the rest in another "
            "request."
        )


_BEFORE_VALUE = re.compile(rb'(?:[^"{\[,]++|"(?:[^"\\]++|\\.)*+"?)*+[{\[,]', re.DOTALL)
"""Matches up to each bracket or comma that is not in a string."""

_BEFORE_VALUES = (b"{", b"[", b",")
"""One of these precedes each value, or the value's name."""
