"""The rules that recognize secrets: by the name of their key, or by their form.

`patterns.toml` is the table of them.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import re2  # type: ignore[import-untyped]  # google-re2 has no type hints

from tracer.records.masks import mask

# --- Regular expressions that take linear time, even for hostile expressions and texts.
#
# The engine is RE2 (https://github.com/google/re2/wiki/Syntax). RE2 has no look-around and no
# backreferences. `\d`, `\w`, `\s` and `\b` match ASCII characters only.


class LinearRegex:
    """A compiled regular expression."""

    def __init__(self, expression: str) -> None:
        """Compile an expression.

        Raises:
            ValueError: The expression is invalid, or RE2 does not support it. The message does not
                quote the expression, because it may reveal the form of secrets.
        """
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        try:
            self._regex: Any = re2.compile(expression, options)
        except re2.error:
            raise ValueError(
                "RE2 does not support one of the regular expressions: it has no look-around and "
                "no backreferences (https://github.com/google/re2/wiki/Syntax)"
            ) from None

    def is_in(self, text: str | bytes) -> bool:
        """Return whether the expression matches anywhere in a text or in UTF-8 bytes."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self._regex.search(data) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each match, in order. Lone surrogates never match."""
        data = text.encode("utf-8", "surrogatepass")
        byte = character = 0
        for match in self._regex.finditer(data):
            positions = []
            for position in match.span():
                character += len(data[byte:position].decode("utf-8", "surrogatepass"))
                byte = position
                positions.append(character)
            yield positions[0], positions[1]


def any_of(expressions: Iterable[str]) -> str:
    """Return an expression that matches what any of `expressions` matches."""
    return "|".join(f"(?:{each})" for each in expressions)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("patterns.toml").read_text(encoding="utf-8"))


def _compiled(expression: str) -> re.Pattern[str]:
    parts: dict[str, str] = _table()["text"]
    return re.compile(re.sub("@([a-z]+)@", lambda part: parts[part[1]], expression))


TEXT = {name: _compiled(expression) for name, expression in _table()["text"].items()}
"""The regular expressions of the table that describe how texts are written."""


def _rows(name: str, parts: str) -> list[dict[str, re.Pattern[str]]]:
    rows = _table()[name]
    return [{part: _compiled(row.get(part, "")) for part in parts.split()} for row in rows]


PLACES = _rows("place", "before key after value")
"""The places of the table where the value of a key may be."""

HARMLESS = _rows("harmless_value", "how rule value after before")
"""The values of secret keys that are harmless, by the table."""


# --- Recognize keys whose values are secret, such as `password`.

MAX_KEY_CHARACTERS = 128
"""The length of the longest key that is recognized."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")


def words_of(key: str) -> str:
    """Return the words of a key in lower case, joined by `_`: `apiKey` becomes `api_key`."""
    return _WORDS.sub("_", key).lower().strip("_")


def configured_keys(setting: str) -> tuple[str, ...]:
    """Return the keys that a setting lists, in the form that `SecretKeys` expects.

    Args:
        setting: The keys, separated by commas.

    Raises:
        ValueError: A key has no letters or digits, or does not have 2 to 40 characters.
    """
    keys = tuple(words_of(each) for each in setting.split(",") if each.strip())
    if not all(re.fullmatch("[a-z0-9_]{2,40}", each) for each in keys):
        raise ValueError("write keys of 2 to 40 letters and digits, separated by commas")
    return keys


class SecretKeys:
    """Recognizes keys whose values are secret.

    Upper and lower case, and separators such as `-`, make no difference.
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        """Recognize the keys of the table and those in `more`.

        Args:
            more: Further keys, in the form that `configured_keys` returns.
        """
        own = (
            {"words": each, "starts": each.replace("_", "[ _.-]?"), "rule": each} for each in more
        )
        self._rows: list[dict[str, str]] = [*_table()["key"], *own]
        words = "|".join(f"({row['words'].replace('_', '_?')})" for row in self._rows)
        self._known = re.compile(f"(?:^|_)(?:{words})[0-9]*(?:_|$)")
        ends, before = (_table()["harmless"][each].split() for each in ("words", "before_token"))
        self._harmless = re.compile(f"_(?:{'|'.join(ends)})$|(?:^|_)(?:{'|'.join(before)})_?token")
        self.starts = f"(?i:{any_of(row['starts'] for row in self._rows)})"
        """An expression of RE2 that matches a part of each secret key, and of some other texts."""
        self._row_of = lru_cache(4096)(self._row)

    def rule_of(self, key: str, value: str | None = None) -> str | None:
        """Return the rule that a key matches; None if its value is not secret.

        Args:
            key: The key.
            value: The value, which some rules examine; None: no rule examines it.
        """
        row = self._row_of(key[-MAX_KEY_CHARACTERS:])
        if row is None:
            return None
        if value is not None and not re.match(row.get("value", ""), value):
            return None
        return row["rule"]

    def _row(self, key: str) -> dict[str, str] | None:
        words = words_of(key)
        match = self._known.search(words)
        if match is None or match.lastindex is None:
            return None
        is_of_table = match.lastindex <= len(_table()["key"])
        if is_of_table and self._harmless.search(words):
            return None
        return self._rows[match.lastindex - 1]


# --- Recognize secrets by their form, such as `ghp_…`, whatever their key is.


def is_boundary(text: str, position: int, removed: list[int]) -> bool:
    """Return whether a word begins or ends at a position. All forms share this definition.

    A word consists of ASCII letters and digits. It also ends where something was removed from the
    text, such as an escape sequence of a terminal.

    Args:
        text: The text.
        position: The position.
        removed: The positions at which something was removed, sorted.
    """
    around = text[max(position - 1, 0) : position + 1]
    at = bisect_left(removed, position)
    return not (len(around) > 1 and around.isascii() and around.isalnum()) or (
        removed[at : at + 1] == [position]
    )


class Forms:
    """Recognizes secrets by the forms of the table."""

    def __init__(self) -> None:
        rows = _table()["form"]
        self.starts = any_of(row["starts"] for row in rows)
        """An expression of RE2 that matches where each secret begins, and in some other places."""
        forms = (row["form"].replace("(?P<s>", f"(?P<s{at}>") for at, row in enumerate(rows))
        self._forms = re.compile("|".join(f"(?P<r{at}>{form})" for at, form in enumerate(forms)))
        self._rules = {f"r{at}": (row["rule"], row.get("check")) for at, row in enumerate(rows)}

    def secret_at(self, text: str, start: int, removed: list[int]) -> tuple[int, int, str] | None:
        """Return the start, end and mask of a secret that begins at `start`; None if none does.

        `removed` are the positions at which something was removed from the text.
        """
        match = self._forms.match(text, start) if is_boundary(text, start, removed) else None
        if match is None or match.lastgroup is None:
            return None
        rule, check = self._rules[match.lastgroup]
        if not is_boundary(text, match.end(), removed):
            return None
        if check == "luhn" and not _passes_luhn(match[0]):
            return None
        part = f"s{match.lastgroup[1:]}"
        start, end = match.span(part if part in self._forms.groupindex else 0)
        return start, end, mask(rule)


def _passes_luhn(number: str) -> bool:
    digits = [int(each) for each in reversed(number) if each in "0123456789"]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def configured_patterns(setting: str) -> tuple[LinearRegex, ...]:
    """Return the patterns that a setting lists, separated by spaces.

    Raises:
        ValueError: RE2 does not support an expression, or an expression matches empty text or a
            mask.
    """
    patterns = tuple(map(LinearRegex, setting.split()))
    if any(each.is_in("") or each.is_in(mask("own_pattern")) for each in patterns):
        raise ValueError(
            "one of the regular expressions matches empty text or a mask: make it match "
            "secrets only"
        )
    return patterns
