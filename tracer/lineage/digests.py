"""Digests by which the long texts of two runs are compared.

A digest is followed by the beginning of the text. If a text is JSON, its value is compared: white
space and the order of keys make no difference. If an object repeats a key, the last value counts.
Numbers are compared as they are written: `1.0` differs from `1`, and integers above 2**53 stay
exact.
"""

from __future__ import annotations

import json
from hashlib import sha256

import orjson

from tracer.text import nests_too_deep

BEGINNING = 200
"""The number of characters at the beginning of a text that follow its digest."""

_HEX = frozenset("0123456789abcdef")
_DIGITS = 64


def value_of(text: str) -> str:
    """Return JSON text with sorted keys and without white space.

    Other text, and JSON that nests deeper than 250 levels, is returned unchanged.
    """
    if not text.lstrip(" \t\n\r").startswith(("{", "[", '"')) or nests_too_deep(text):
        return text
    try:
        value = json.loads(
            text, parse_int=orjson.Fragment, parse_float=orjson.Fragment, parse_constant=_refuse
        )
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    # orjson raises TypeError for a lone surrogate or too many levels.
    except (ValueError, TypeError, RecursionError):
        return text


def _refuse(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are not JSON


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, followed by the beginning of the text.

    JSON text is first normalized by `value_of`.
    """
    value = value_of(text)
    return sha256(value.encode()).hexdigest() + value[:BEGINNING]


def is_digest(text: str) -> bool:
    """Return whether a store has replaced a text by its digest.

    Stores do not replace JSON objects, arrays and strings, because JSON must be normalized before
    its digest is computed.
    """
    return text[:1] in _HEX


def beginning_of(digest: str | None) -> str | None:
    """Return the beginning of the text that a digest represents; None if it is absent or blank."""
    return None if digest is None else digest[_DIGITS:].strip() or None
