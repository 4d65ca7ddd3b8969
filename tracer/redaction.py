"""Redaction: what looks like a secret is masked before anything keeps it.

A secret is found by its key (`tracer.secret_keys`: `"password": …`, `api_key=…`) or by its own form
(`tracer.secret_values`). In its place stands `[masked: RULE]`, and the rest of the text stays as it
was, JSON that it may be or nearly is. Masking what is masked changes nothing.

Text has to be in stored form (`tracer.text`): what Rust's engine looks for needs valid Unicode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from string import ascii_letters, ascii_uppercase, digits
from typing import NamedTuple

from pydantic_core import SchemaError, SchemaValidator, core_schema

from tracer.json_pieces import JsonPieces
from tracer.secret_keys import SecretKeys, key_name
from tracer.secret_values import SECRET_VALUES, SecretValue, own_pattern

MASK = "[masked: "
"""What every mask begins with."""

A_MASK = re.compile(r"\[masked: [a-z0-9_]{1,40}\]")

NOT_KEPT = r"\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z"
"""How a text ends of which not all is kept; in Python's and in Postgres's expressions."""

MARK_CHARACTERS = 60
"""No such end is longer."""

_NOT_KEPT = re.compile(NOT_KEPT)
_END_OF_SIZE = " bytes]"

_KEY_CHARACTERS = f"{ascii_letters}{digits}_.-"
_MOST_OF_A_KEY = 64


def mask(rule: str) -> str:
    """Return what stands in the place of a secret."""
    return f"{MASK}{rule}]"


def not_kept(text: str) -> re.Match[str] | None:
    """Return how a text ends of which not all is kept; None where all is."""
    return _NOT_KEPT.search(text[-MARK_CHARACTERS:]) if text.endswith(_END_OF_SIZE) else None


def names_given(setting: str) -> tuple[str, ...]:
    """Return the keys that a setting names, separated by commas. Raises `ValueError`."""
    return tuple(key_name(each) for each in setting.split(",") if each.strip())


def patterns_given(setting: str) -> tuple[SecretValue, ...]:
    """Return the patterns that a setting has, separated by spaces. Raises `ValueError`."""
    patterns = tuple(own_pattern(each) for each in setting.split())
    for each in patterns:
        try:
            _finder([each.hint])
        except SchemaError:
            raise ValueError(
                "one of the regular expressions looks around or back, which takes too long in "
                "large texts: write it without"
            ) from None
    return patterns


class Redaction:
    """Masks secrets in texts."""

    def __init__(self, keys: Iterable[str] = (), values: Iterable[SecretValue] = ()) -> None:
        """Mask what is known to be a secret, and more.

        Args:
            keys: Names of more keys that hold secrets, as `names_given` returns them.
            values: More forms of secrets, as `patterns_given` returns them.
        """
        known = SecretKeys(keys)
        self._stem = known.stem
        self._rule_of: Callable[[str], str | None] = known.rule_of
        self._values = [
            (each, _finder([each.hint]).isinstance_python) for each in (*SECRET_VALUES, *values)
        ]
        hints = [each.hint for each, _ in self._values]
        self._may_hold: Callable[[str], bool] = _finder([known.hint, *hints]).isinstance_python
        self._may_hold_key = _finder([known.hint]).isinstance_python
        self._may_hold_value: Callable[[str], bool] = _finder(hints).isinstance_python

    @classmethod
    def off(cls) -> Redaction:
        """Return what masks nothing."""
        redaction = cls()
        redaction._may_hold = redaction._may_hold_value = lambda _: False
        redaction._rule_of = lambda _: None
        return redaction

    def may_hold_secret(self, text: str) -> bool:
        """Return False where there is certainly nothing to mask: within a microsecond or two."""
        return self._may_hold(text)

    def rule_of(self, key: str) -> str | None:
        """Return the rule that a key of an attribute falls under; None where it holds no secret."""
        return self._rule_of(key[-_MOST_OF_A_KEY:])

    def text(self, text: str) -> str:
        """Return a text with the values of secret keys, and secret values, masked."""
        return self._until_nothing_changes(self._may_hold, self._masked_once, text)

    def _masked_once(self, text: str) -> str:
        if self._may_hold_key(text):
            text = self._without_keys(text)
        return self._without_values(text) if self._may_hold_value(text) else text

    def value(self, text: str) -> str:
        """Return a text, which is no place for keys, with secret values masked."""
        return self._until_nothing_changes(self._may_hold_value, self._without_values, text)

    def _until_nothing_changes(
        self, may_hold: Callable[[str], bool], masked: Callable[[str], str], text: str
    ) -> str:
        if not may_hold(text) and not text.endswith(_END_OF_SIZE):
            return text  # as nearly all are
        text, size = _parted(text)
        # What stood beside a secret can be seen to be one when that is gone.
        for _ in range(_MOST_ROUNDS):
            before, text = text, masked(text) if may_hold(text) else text
            if text == before:
                break
        return text + size

    def _without_values(self, text: str) -> str:
        for secret, may_be_there in self._values:
            if may_be_there(text):
                text = _without_value(secret, text)
        return text

    def _without_keys(self, text: str) -> str:
        parts: list[str] = []
        kept = at = 0
        lowered = text.lower() if text.isascii() else text.translate(_LOWER)
        while found := self._stem.search(lowered, at):
            start, end = _key_around(text, *found.span())
            at = end
            rule = self._rule_of(text[start:end])
            value = None if rule is None else _value_of(text, start, end, rule)
            if value is not None:
                parts += [text[kept : value.start], value.masked]
                kept = at = value.end
        return "".join([*parts, text[kept:]]) if parts else text


def _parted(text: str) -> tuple[str, str]:
    """Return a text, and what says at its end how long it was: that is none of it."""
    said = not_kept(text)
    return (text, "") if said is None else (text[: -len(said[0])], said[0])


_MOST_ROUNDS = 10

_LOWER = {ord(each): each.lower() for each in ascii_uppercase}
"""To lower case without a change of length, which `str.lower` makes of some letters."""


def _finder(patterns: Iterable[str]) -> SchemaValidator:
    """Return what looks for any of the patterns: pydantic's engine is Rust's."""
    joined = "|".join(f"(?:{each})" for each in patterns)
    return SchemaValidator(core_schema.str_schema(pattern=joined, regex_engine="rust-regex"))


def _without_value(secret: SecretValue, text: str) -> str:
    parts: list[str] = []
    kept = 0
    json = JsonPieces(text)
    for found in secret.pattern.finditer(text):
        if secret.is_real(found):
            within = "masked" if "masked" in found.re.groupindex else 0
            for start, end, is_bare in json.of(*found.span(within)):
                if start >= kept:  # else a number has two of them
                    masked = mask(secret.rule)
                    parts += [text[kept:start], f'"{masked}"' if is_bare else masked]
                    kept = end
    return "".join([*parts, text[kept:]]) if parts else text


def _key_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where the key begins and ends that a stem is in."""
    before = text[max(0, start - _MOST_OF_A_KEY) : start]
    after = text[end : end + _MOST_OF_A_KEY]
    return (
        start - len(before) + len(before.rstrip(_KEY_CHARACTERS)),
        end + len(after) - len(after.lstrip(_KEY_CHARACTERS)),
    )


class _Value(NamedTuple):
    """Where the value of a key stands, and what to put there."""

    start: int
    end: int
    masked: str


_SEPARATOR = re.compile(r"""(?P<quote>\\*+["'])?\s{0,20}(?::=|=>|={1,3}|:)\s{0,20}""")
_OPTION_SEPARATOR = re.compile(r"\s{1,20}(?![-\s])|=")
_OPENING = re.compile(r"""\\*+["']""")
# Backslashes alone are found, too: or each of a long row of them would look for the end of it.
_QUOTES = re.compile(r"""(\\*+)(["'])|\\++""")
_QUOTES_OR_BRACKETS = re.compile(r"""(\\*+)(["'])|\\++|[\[\]{}]""")

_BARE_IN_JSON = re.compile(r"""[^\s,}\]\\"']++""")
_BARE = re.compile(
    r"""(?![\w.]{0,100}[(\[{])(?:[^\s"'\\,;&<>()\[\]{}|]|[,;&](?![\s\\]|[\w.-]{1,40}[=:]|$))++"""
)
_LINE = re.compile(r"""[^\r\n"'\\]++""")

_NO_SECRET = re.compile(
    r"(?:null|none|nil|true|false|undefined|nan|str|string|int|integer|number|bool|boolean|bytes"
    r"|any|optional|object|secretstr|self)(?![\w])",
    re.IGNORECASE,
)
_IS_SCHEMA = re.compile(
    r"""\\*["'](?:type\\*["']\s{0,20}:\s{0,20}\\*["'](?:string|number|integer|boolean|object|array)"""
    r"""|anyOf|oneOf|allOf|\$ref)\\*["']"""
)


def _value_of(text: str, start: int, end: int, rule: str) -> _Value | None:
    """Return the value of the key that stands there; None where there is none to be masked."""
    separator = _SEPARATOR.match(text, end)
    if separator is None and text.startswith("--", start):
        separator = _OPTION_SEPARATOR.match(text, end)
    if separator is None:
        return None
    at = separator.end()
    key_quote = separator.groupdict().get("quote")
    if text.startswith(MASK, at):
        return None
    if opening := _OPENING.match(text, at):
        if key_quote is None and _closes(text, opening):
            return None
        end = _end_of_string(text, opening.end(), opening[0])
        content = text[opening.end() : end]
        if not content.strip() or A_MASK.fullmatch(content):
            return None
        return _Value(opening.end(), end, mask(rule))
    if key_quote is None:
        whole_line = rule in ("authorization", "cookie")
        return _bare_value(text, at, (_LINE if whole_line else _BARE), mask(rule))
    masked = f"{key_quote}{mask(rule)}{key_quote}"
    if text[at : at + 1] in ("{", "["):
        end = _end_of_structure(text, at, key_quote)
        is_empty = not text[at + 1 : min(end, at + 40) - 1].strip()
        if is_empty or _IS_SCHEMA.search(text, at, min(end, at + 4000)):
            return None
        return _Value(at, end, masked)
    return _bare_value(text, at, _BARE_IN_JSON, masked)


_AFTER_STRING = re.compile(r"\s{0,20}(?:[,:}\]]|$)")


def _closes(text: str, quote: re.Match[str]) -> bool:
    """Return whether the quote after `key=` ends the text that this stands in: no value begins."""
    is_outermost = text[:1] in ("{", "[") and quote[0] == '"'
    return is_outermost or _AFTER_STRING.match(text, quote.end()) is not None


def _bare_value(text: str, at: int, form: re.Pattern[str], masked: str) -> _Value | None:
    found = form.match(text, at)
    if found is None or not found[0].strip() or _NO_SECRET.match(text, at):
        return None
    return _Value(at, found.end(), masked)


def _end_of_string(text: str, start: int, opening: str) -> int:
    """Return where the text ends that an opening quote begins, be it within JSON within JSON."""
    slashes, quote = len(opening) - 1, opening[-1]
    for found in _QUOTES.finditer(text, start):
        before = len(found[1] or "")
        if found[2] != quote:
            continue
        if before < slashes:
            return found.start()  # what is around it ends
        if before % (2 * slashes + 2) == slashes:
            return found.end() - 1 - slashes
    return len(text)


def _end_of_structure(text: str, start: int, key_quote: str) -> int:
    """Return where the object or array ends that begins there."""
    slashes, within, depth = len(key_quote) - 1, "", 0
    for found in _QUOTES_OR_BRACKETS.finditer(text, start):
        quote = found[2]
        if quote is not None:
            before = len(found[1] or "")
            if before < slashes:
                return found.start()
            if before % (2 * slashes + 2) == slashes and quote == (within or quote):
                within = "" if within else quote
        elif not within and found[0] in "[]{}":
            depth += 1 if found[0] in "[{" else -1
            if depth == 0:
                return found.end()
    return len(text)


@cache
def standard_redaction() -> Redaction:
    """Return what masks what is known to be a secret, and no more."""
    return Redaction()
