"""Find secrets in text that is not JSON, or only similar to JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import ascii_letters, digits

from tracer.records.masks import A_MASK, MASK, mask
from tracer.redaction.edits import MASK_WORK, Edit, WorkCounter
from tracer.redaction.linear_regex import LinearRegex
from tracer.redaction.patterns import ValuePattern

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
_OPENING = re.compile(r"""\\*+["']""")
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
    if opening := _OPENING.match(text, at):
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
