"""Which stored texts Postgres can cast to `jsonb`.

The arguments and the result of a tool call are stored as text. Each text has a flag that records
whether it can be cast, so that the views cast valid JSON and never raise an error.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import orjson

from tracer.text import nests_too_deep

FIT_COLUMNS = {"arguments_fit": "arguments", "result_fit": "result"}
"""The flag columns of a tool call, each with the text column that it describes."""

FIT_VALUES = {flag: f"coalesce(incoming.{flag}, false)" for flag in FIT_COLUMNS}
"""The SQL of each flag's value in a written row. The JSON of a row omits flags that are false."""

_MAX_CHARACTERS = 1_000_000

_MAX_WEIGHT = 131_071
"""Greatest power of ten that `numeric` has a digit for."""

_MAX_SCALE = 16_383
"""Number of digits after the decimal point that `numeric` has."""

# After an even number of backslashes, `u0000` is plain text.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*+\\u0000")

# orjson and Postgres agree about all other numbers. The lookbehind keeps the search linear: the
# digits of a run are counted from its first digit only.
_UNUSUAL_NUMBER = re.compile(r"[0-9](?:[eE][-+]?[0-9]{3}|(?<![0-9][0-9])[0-9]{199})")

_STRING_OR_NUMBER = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
    r"|-?(?:0(?![0-9])|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+",
    re.DOTALL,
)


def fits_jsonb(text: str | None) -> bool:
    """Return whether Postgres can cast a text in stored form to `jsonb`.

    Return False for texts of more than a million characters or 512 levels too. Postgres raises
    an error for deep nesting (`stack depth limit exceeded`), even in `pg_input_is_valid`.
    """
    if text is None or len(text) > _MAX_CHARACTERS or nests_too_deep(text):
        return False
    if "\\u0000" in text and _ESCAPED_NUL.search(text):
        return False
    is_json = _is_json(text)
    if is_json:
        # orjson accepts a short number that Postgres refuses only if it contains `e-` or `0e`.
        may_differ = (
            len(text) > _MAX_SCALE
            or "e-" in text
            or "0e" in text
            or ("E" in text and ("E-" in text or "0E" in text))
        )
    else:  # orjson refuses numbers that are too large for a float
        may_differ = text.lstrip()[:1] in "[{-0123456789"
    if may_differ and _UNUSUAL_NUMBER.search(text):
        return _is_json(_STRING_OR_NUMBER.sub(_without_number, text))
    return is_json


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _without_number(match: re.Match[str]) -> str:
    """Return the replacement of a JSON token.

    A string is returned unchanged. A number that fits `numeric` becomes `null`. Any other number
    becomes `?`, which makes the text invalid JSON.
    """
    token = match[0]
    if token.startswith('"'):
        return token
    return "null" if _fits_numeric(token) else "?"


def _fits_numeric(number: str) -> bool:
    """Return whether a number of JSON is in the range of `numeric`."""
    if len(number) < len("1e-99999"):
        return True
    try:
        value = Decimal(number)
    except InvalidOperation:  # its exponent has more than 18 digits
        return False
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), number
    if exponent < -_MAX_SCALE:
        return False
    # Postgres limits the exponent of zero too: to 2 ** 30 - 1, before the point is moved.
    return value.adjusted() <= _MAX_WEIGHT if value else exponent < 1_000_000_000
