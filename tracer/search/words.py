"""Words: what of a text can be searched.

One function makes the words of stored texts and of queries. The index has the words of a text in
order, separated by spaces, so the position of a word is its number.

- Case, compatibility forms (NFKC) and the marks of Latin, Greek, Cyrillic, Arabic and Hebrew
  letters make no difference. The marks of other scripts do.
- A word is a sequence of letters, digits and marks. Words of more than 60 characters are cut.
- Scripts without spaces between words (`_UNSPACED`) become overlapping pairs of characters. The
  last character follows alone, so that each character begins a word.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

LONGEST_WORD = 60

_UNSPACED = (
    # Thai, Lao, Burmese, Khmer
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30fa\u30fc-\u30ff\u3100-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff"
)
_REMOVED = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u08d3-\u08ff]+"
)
"""Marks of Latin, Greek, Cyrillic, Arabic and Hebrew letters, and the Arabic tatweel."""

_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_NOT_A_WORD = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
_LONG = re.compile(rf"([^ ]{{{LONGEST_WORD}}})[^ ]+")


def words_of(text: str) -> str:
    """Return the words of a text in order, separated by spaces."""
    folded = fold(text)
    if folded.isascii():
        return _LONG.sub(r"\1", " ".join(folded.translate(_NOT_A_WORD).split()))
    return " ".join(word for _, word in _split(folded))


def places_of(text: str) -> tuple[list[int], list[int]]:
    """Return where each word begins in the folded text, and the places of `placed_fold`."""
    folded, places = placed_fold(text)
    return [begin for begin, _ in _split(folded)], places


def placed_fold(text: str) -> tuple[str, list[int]]:
    """Return a folded text, and for each of its characters the place where it begins in `text`.

    The last place is the length of `text`.
    """
    if text.isascii():
        return text.lower(), list(range(len(text) + 1))
    places: list[int] = []
    parts: list[str] = []
    for unit in _unit().finditer(text):
        folded = fold(unit[0])
        parts.append(folded)
        places += range(*unit.span()) if unit[1] else [unit.start()] * len(folded)
    return "".join(parts), [*places, len(text)]


def fold(text: str) -> str:
    """Return a text without the differences that searches ignore."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = _REMOVED.sub("", unicodedata.normalize("NFKD", plain))
    return unicodedata.normalize("NFC", plain)


def is_unspaced(word: str) -> bool:
    """Return whether a word belongs to a script without spaces between words."""
    return _UNSPACED_CHARACTER.match(word) is not None


def _split(folded: str) -> Iterator[tuple[int, str]]:
    for found in _word().finditer(folded):
        begin, end = found.span()
        if found[1] is None:
            yield begin, folded[begin : min(end, begin + LONGEST_WORD)]
        else:
            yield from ((at, folded[at : min(end, at + 2)]) for at in range(begin, end))


@cache
def _marks() -> str:
    """Return the combining marks of all scripts as the content of a regular expression's class."""
    ranges: list[list[int]] = []
    for code in range(0x300, 0x1F000):  # those above vary the shape of a character
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def _word() -> re.Pattern[str]:
    """Match a word. The first group is set for scripts without spaces between words."""
    return re.compile(rf"([{_UNSPACED}]+)|(?:(?![{_UNSPACED}])(?:[^\W_]|[{_marks()}]))+")


@cache
def _unit() -> re.Pattern[str]:
    """Match a character with all that may be composed with it, or a sequence of ASCII (group 1)."""
    composed = f"{_marks()}\u1160-\u11ff\uff9e\uff9f"
    return re.compile(rf"([\x00-\x7f]+)(?![{composed}])|(?s:.)[{composed}]*")


# --- The plain text of a stored text.

_DEEPEST = 8
_MASK = re.compile(r"\[masked: [a-z0-9_ ]{1,60}\]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrtbf])|(.))")


def plain_text(text: str) -> str:
    """Return a stored text as a person reads it: JSON without its escapes, and without masks.

    Numbers stay as they are written.
    """
    if text[:1] in ("{", "[", '"') or (text[:1].isspace() and text.lstrip()[:1] in ("{", "[")):
        text = _plain(text, 0)
    return _MASK.sub("[…]", text) if "[" in text else text


def _plain(text: str, depth: int) -> str:
    try:
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return _ESCAPE.sub(_unescaped, text) if "\\" in text else text
    parts: list[str] = []
    try:
        _collect(value, parts, depth)
    except RecursionError:
        return text
    return ", ".join(parts)


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        character = chr(int(found[1], 16))
        return " " if "\ud800" <= character <= "\udfff" else character
    return " " if found[2] else str(found[3])


def _collect(value: Any, parts: list[str], depth: int, name: str = "") -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            _collect(each, parts, depth, f"{key}: ")
    elif isinstance(value, list):
        for each in value:
            _collect(each, parts, depth, name)
            name = ""
    elif value is not None:
        text = value if isinstance(value, str) else str(value).lower()
        if text[:1] in ("{", "[") and depth < _DEEPEST:
            text = _plain(text, depth + 1)
        parts.append(name + text)
