"""Redact texts: replace each secret by `[masked: RULE]`, and leave everything else unchanged.

A secret is recognized by its key, such as `"password": …` or `api_key=…`, or by its form
(`tracer.redaction.rules`). JSON remains valid JSON. Redacting a text a second time does not change
it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from string import ascii_letters, digits
from typing import NamedTuple

import msgspec

from tracer.errors import TooManySecrets
from tracer.records.masks import A_MASK, MASK, mask, not_kept, payload_mark
from tracer.redaction.rules import VALUE_PATTERNS, LinearRegex, SecretKeys, ValuePattern

# --- Edits: which part of a text is replaced by which mask.

MAX_WORK = 300_000
"""The largest amount of work on one text. Each possible secret that is examined counts 1. Each mask
counts `MASK_WORK`."""

MASK_WORK = 30

MAX_SECRETS = MAX_WORK // MASK_WORK
"""The largest number of secrets that are masked in one text. A text with more secrets is replaced
as a whole."""


class TooMuchWork(Exception):
    """A text contains more secrets, or possible secrets, than can be examined."""


class WorkCounter:
    """Counts the work on one text, to limit it."""

    def __init__(self) -> None:
        self.done = 0

    def add(self, work: int = 1) -> None:
        """Add to the count.

        Raises:
            TooMuchWork: The count exceeds `MAX_WORK`.
        """
        self.done += work
        if self.done > MAX_WORK:
            raise TooMuchWork


class Edit(NamedTuple):
    """A part of a text, and the mask that replaces it."""

    start: int
    end: int
    replacement: str


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Return `text` with all edits applied. The edits must be sorted and must not overlap."""
    parts: list[str] = []
    position = 0
    for start, end, replacement in edits:
        parts += (text[position:start], replacement)
        position = end
    parts.append(text[position:])
    return "".join(parts)


def united(text: str, edits: Iterable[Edit]) -> list[Edit]:
    """Return edits sorted by position, with overlapping edits merged.

    Masks that `text` already contains stay whole. An edit inside such a mask is dropped. An edit
    that overlaps such a mask is extended to cover it.
    """
    masks = [match.span() for match in A_MASK.finditer(text)] if MASK in text else []
    result: list[Edit] = []
    next_mask = 0
    for edit in sorted(edits, key=lambda each: each[:2]):
        while next_mask < len(masks) and masks[next_mask][1] <= edit.start:
            next_mask += 1
        covered = next_mask
        while covered < len(masks) and masks[covered][0] < edit.end:
            start, end = masks[covered]
            covered += 1
            if start <= edit.start and edit.end <= end:
                break
            edit = Edit(min(start, edit.start), max(end, edit.end), edit.replacement)
        else:
            if result and edit.start < result[-1].end:
                last = result[-1]
                result[-1] = last._replace(end=max(last.end, edit.end))
            else:
                result.append(edit)
    return result


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
)


def within_string(raw: str, edits: Sequence[Edit], offset: int) -> list[Edit]:
    r"""Convert edits of a JSON string's value to edits of the text that contains the string.

    The positions differ if the string contains escapes such as `\n`.

    Args:
        raw: The string as written in the text, without its quotes.
        edits: Edits of the string's value, sorted.
        offset: The position of `raw` in the text.
    """
    shift = offset
    escapes = _ESCAPE.finditer(raw)
    escape = next(escapes, None)
    result: list[Edit] = []
    for edit in edits:
        positions = []
        for position in (edit.start, edit.end):
            # An escape of any length is one character of the value.
            while escape is not None and escape.start() + offset - shift < position:
                shift += len(escape[0]) - 1
                escape = next(escapes, None)
            positions.append(position + shift)
        replacement = json.dumps(edit.replacement, ensure_ascii=False)[1:-1]
        result.append(Edit(positions[0], positions[1], replacement))
    return result


# --- Find secrets in text that is not JSON, or only similar to JSON.

MAX_KEY_CHARACTERS = 64
"""How much of a key is read on each side of the word that suggests a secret."""

_KEY_CHARACTERS = f"{ascii_letters}{digits}_.-"


def value_edits(
    text: str, patterns: Sequence[tuple[ValuePattern, LinearRegex]], work: WorkCounter
) -> list[Edit]:
    """Return edits that mask each secret that a pattern recognizes."""
    edits: list[Edit] = []
    for pattern, regex in patterns:
        for start, end in regex.spans(text):
            work.add()
            if pattern.is_secret is None or pattern.is_secret(text, start, end):
                work.add(MASK_WORK)
                edits.append(Edit(start, end, mask(pattern.rule)))
    return edits


def key_edits(
    text: str, candidates: LinearRegex, rule_of: Callable[[str], str | None], work: WorkCounter
) -> list[Edit]:
    """Return edits that mask the value of each secret key.

    The key may be written as in JSON, Python's `repr`, an HTTP header, a URL or a command-line
    option.
    """
    edits: list[Edit] = []
    position = 0
    for stem in candidates.spans(text):
        work.add()
        if stem[0] < position:
            continue  # within the value of the previous key
        start, end = _key_around(text, *stem)
        rule = rule_of(text[start:end])
        edit = None if rule is None else _value_of(text, start, end, rule)
        position = end
        if edit is not None:
            work.add(MASK_WORK)
            edits.append(edit)
            position = edit.end
    return edits


def _key_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the start and end of the whole key that contains `text[start:end]`."""
    before = text[max(0, start - MAX_KEY_CHARACTERS) : start]
    after = text[end : end + MAX_KEY_CHARACTERS]
    return (
        start - len(before) + len(before.rstrip(_KEY_CHARACTERS)),
        end + len(after) - len(after.lstrip(_KEY_CHARACTERS)),
    )


_SEPARATOR = re.compile(r"""(?P<quote>\\*+["'])?\s{0,20}(?::=|=>|={1,3}|:)\s{0,20}""")
_OPTION_SEPARATOR = re.compile(r"\s{1,20}(?![-\s])|=")
_OPENING_QUOTE = re.compile(r"""\\*+["']""")
# Backslashes alone match too. Otherwise each of a long row of them would search for its end.
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
IS_SCHEMA = re.compile(
    r"""\\*["'](?:type\\*["']\s{0,20}:\s{0,20}\\*["'](?:string|number|integer|boolean|object|array)"""
    r"""|anyOf|oneOf|allOf|\$ref)\\*["']"""
)


def _value_of(text: str, start: int, end: int, rule: str) -> Edit | None:
    """Return the edit that masks a key's value; None if the value cannot be a secret."""
    separator = _SEPARATOR.match(text, end)
    if separator is None and text.startswith("--", start):
        separator = _OPTION_SEPARATOR.match(text, end)
    if separator is None:
        return None
    at = separator.end()
    key_quote = separator.groupdict().get("quote")
    if text.startswith(MASK, at):
        return None
    if opening := _OPENING_QUOTE.match(text, at):
        if key_quote is None and _closes(text, opening):
            return None
        end = _end_of_string(text, opening.end(), opening[0])
        content = text[opening.end() : end]
        if not content.strip() or A_MASK.fullmatch(content):
            return None
        return Edit(opening.end(), end, mask(rule))
    if key_quote is None:
        whole_line = rule in ("authorization", "cookie")
        return _bare_value(text, at, (_LINE if whole_line else _BARE), mask(rule))
    masked = f"{key_quote}{mask(rule)}{key_quote}"
    if text[at : at + 1] in ("{", "["):
        end = _end_of_structure(text, at, key_quote)
        is_empty = not text[at + 1 : min(end, at + 40) - 1].strip()
        if is_empty or IS_SCHEMA.search(text, at, min(end, at + 4000)):
            return None
        return Edit(at, end, masked)
    return _bare_value(text, at, _BARE_IN_JSON, masked)


_AFTER_STRING = re.compile(r"\s{0,20}(?:[,:}\]]|$)")


def _closes(text: str, quote: re.Match[str]) -> bool:
    """Return whether the quote after `key=` ends the string around it.

    Otherwise, the quote starts the value.
    """
    is_outermost = text[:1] in ("{", "[") and quote[0] == '"'
    return is_outermost or _AFTER_STRING.match(text, quote.end()) is not None


def _bare_value(text: str, at: int, form: re.Pattern[str], masked: str) -> Edit | None:
    match = form.match(text, at)
    if match is None or not match[0].strip() or _NO_SECRET.match(text, at):
        return None
    return Edit(at, match.end(), masked)


def _end_of_string(text: str, start: int, opening: str) -> int:
    """Return the end of the string that starts at `start`. The string may be JSON inside JSON."""
    slashes, quote = len(opening) - 1, opening[-1]
    for match in _QUOTES.finditer(text, start):
        before = len(match[1] or "")
        if match[2] != quote:
            continue
        if before < slashes:
            return match.start()  # the surrounding string ends
        if before % (2 * slashes + 2) == slashes:
            return match.end() - 1 - slashes
    return len(text)


def _end_of_structure(text: str, start: int, key_quote: str) -> int:
    """Return the end of the object or array that starts at `start`."""
    slashes, open_quote, depth = len(key_quote) - 1, "", 0
    for match in _QUOTES_OR_BRACKETS.finditer(text, start):
        quote = match[2]
        if quote is not None:
            before = len(match[1] or "")
            if before < slashes:
                return match.start()
            if before % (2 * slashes + 2) == slashes and quote == (open_quote or quote):
                open_quote = "" if open_quote else quote
        elif not open_quote and match[0] in "[]{}":
            depth += 1 if match[0] in "[{" else -1
            if depth == 0:
                return match.end()
    return len(text)


# --- Find secrets in JSON text, and return edits that mask them.
#
# msgspec checks whether a text is JSON. A regular expression then finds the tokens and their
# positions in the text, without building Python values. The value of each string is examined as a
# text of its own, because it may contain JSON.

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


# --- Redact texts: replace each secret by `[masked: RULE]`, and leave everything else unchanged.
#
# A secret is recognized by its key, such as `"password": …` or `api_key=…`
# or by its form (`tracer.redaction.rules`). JSON remains valid JSON. Redacting a text a second time
# does not change it.

MAX_TOTAL_WORK = 3_000_000
"""The largest amount of work on all texts of one write, in the unit of `edits.MAX_WORK`. This much
work takes a few seconds."""

_TOKENS_PER_WORK = 16
"""How many JSON tokens count as much work as one possible secret."""

_MAX_PASSES = 3
"""How often a text is searched. Without a limit, a configured pattern that matches one character at
the start of a word would be searched for as often as the text has characters."""

_MAX_NESTED = 10
"""How many levels of JSON inside JSON strings are read as JSON. Each level doubles the backslashes
before a quote, so at level ten a quote takes a kilobyte."""

_ESCAPED_LETTER = r"\\u00(?:2d|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
"""Matches a letter or digit that JSON text escapes, because it may be a character of a secret."""


@dataclass(frozen=True)
class _Rules:
    """The compiled rules of a redaction."""

    rule_of: Callable[[str], str | None]
    patterns: list[tuple[ValuePattern, LinearRegex]]
    key_hint: LinearRegex
    key_candidates: LinearRegex
    value_hint: LinearRegex
    hint: LinearRegex
    is_on: bool = True

    @classmethod
    def of(cls, keys: Iterable[str], values: Iterable[ValuePattern]) -> _Rules:
        """Compile the built-in rules and additional ones; see `Redaction`."""
        secret_keys = SecretKeys(keys)
        patterns = (*VALUE_PATTERNS, *values)
        hints = [each.hint or each.expression for each in patterns] + [_ESCAPED_LETTER]
        return cls(
            rule_of=secret_keys.rule_of,
            patterns=[
                (each, LinearRegex(each.expression, captures=each.captures)) for each in patterns
            ],
            key_hint=_any_of([secret_keys.hint]),
            key_candidates=LinearRegex(secret_keys.candidate),
            value_hint=_any_of(hints),
            hint=_any_of([secret_keys.hint, *hints]),
        )


class Redaction:
    """A set of rules that masks secrets in texts."""

    def __init__(
        self,
        keys: Iterable[str] = (),
        values: Iterable[ValuePattern] = (),
        *,
        rules: _Rules | None = None,
        total: _TotalWork | None = None,
    ) -> None:
        """Create a redaction with the built-in rules and additional rules.

        Args:
            keys: Additional secret keys, in the form that `configured_keys` returns.
            values: Additional patterns of secrets, in the form that `configured_patterns` returns.
            rules: The compiled rules of another redaction, in place of `keys` and `values`.
            total: Limits the work on all texts together; None: only the work on each text.
        """
        self._rules = rules or _Rules.of(keys, values)
        self._total = total

    @classmethod
    def off(cls) -> Redaction:
        """Return a redaction that masks nothing."""
        return cls(rules=replace(_Rules.of((), ()), is_on=False, rule_of=lambda _: None))

    def of_write(self) -> Redaction:
        """Return a copy of this redaction that limits the work on all texts of one write together.

        The methods of the copy raise `TooManySecrets` if the work exceeds `MAX_TOTAL_WORK`.
        """
        return Redaction(rules=self._rules, total=_TotalWork())

    def may_hold_secret(self, text: str | bytes) -> bool:
        """Return False if a text contains no secret; True if it may contain one.

        This check takes only 2 to 4 µs per kilobyte.
        """
        return self._rules.is_on and self._rules.hint.is_in(text)

    def rule_of(self, key: str) -> str | None:
        """Return the rule that an attribute's key matches; None if its values are not secret."""
        return self._rules.rule_of(key[-MAX_KEY_CHARACTERS:])

    def text(self, text: str) -> str:
        """Mask the secrets in a text. They are recognized by their keys and by their form.

        If the text contains more than `MAX_SECRETS` secrets, it is replaced as a whole by `[masked:
        payload of N bytes]`.
        """
        return self._redacted(text, self._rules.hint, has_keys=True)

    def value(self, text: str) -> str:
        """Mask the secrets in a text without keys, such as a name. Only their form is examined."""
        return self._redacted(text, self._rules.value_hint, has_keys=False)

    def _redacted(self, text: str, hint: LinearRegex, *, has_keys: bool) -> str:
        if not self._rules.is_on or not hint.is_in(text):
            return text  # the usual case
        mark = not_kept(text)
        size = "" if mark is None else mark[0]
        front = text[: len(text) - len(size)]
        work = WorkCounter()
        try:
            redacted = front
            # After a mask, another secret may be recognized: a key that was glued to the masked
            # one, or a value in a text that became JSON, such as `{"password": unquoted}`.
            for _ in range(_MAX_PASSES):
                edits = self._edits(redacted, work, hint, has_keys)
                if not edits:
                    break
                redacted = apply(redacted, edits)
        except TooMuchWork:
            redacted = ""
            all_bytes = int(mark[1]) if mark else len(text.encode("utf-8", "surrogatepass"))
            size = payload_mark(all_bytes)
        if self._total is not None:
            self._total.add(work.done)
        return redacted + size

    def _edits(
        self, text: str, work: WorkCounter, hint: LinearRegex, has_keys: bool, level: int = 0
    ) -> list[Edit]:
        if not hint.is_in(text):
            return []
        if level < _MAX_NESTED and is_json(text):
            edits, tokens = json_edits(
                text,
                self.rule_of if has_keys else lambda _: None,
                lambda value: self._edits(value, work, hint, has_keys, level + 1),
                hint.spans(text),
                work,
            )
            if self._total is not None:
                self._total.add(tokens // _TOKENS_PER_WORK)
            return edits
        edits = []
        if has_keys and self._rules.key_hint.is_in(text):
            edits += key_edits(text, self._rules.key_candidates, self._rules.rule_of, work)
        if self._rules.value_hint.is_in(text):
            edits += value_edits(text, self._rules.patterns, work)
        return united(text, edits)


class _TotalWork:
    """Counts the work on all texts of one write."""

    def __init__(self) -> None:
        self._remaining = MAX_TOTAL_WORK

    def add(self, work: int) -> None:
        self._remaining -= work
        if self._remaining < 0:
            raise TooManySecrets


def _any_of(expressions: Iterable[str]) -> LinearRegex:
    joined = "|".join(f"(?:{each})" for each in expressions)
    return LinearRegex(joined, captures=False)


@cache
def standard_redaction() -> Redaction:
    """Return the redaction that has only the built-in rules."""
    return Redaction()
