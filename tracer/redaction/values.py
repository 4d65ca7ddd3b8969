"""Find the value of a secret key in a text, and decide whether it is a secret.

The text may be JSON, code, configuration, a header, a URL, a command line, XML, SQL or prose.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tracer.records.masks import MASK, mask
from tracer.redaction.edits import Edit
from tracer.redaction.rules import HARMLESS, PLACES, SecretKeys, words_of
from tracer.redaction.rules import TEXT as _TEXT

_HEADERS = ("authorization", "cookie")
"""Keys that may be headers, whose values contain spaces."""


ANY_VALUE = "0" * 16
"""Stands for a value that is no text, such as a list."""


class Key(NamedTuple):
    """A secret key in a text."""

    start: int
    name: str
    rule: str
    keys: SecretKeys


def secret_values(
    text: str, start: int, end: int, keys: SecretKeys, name: str | None = None
) -> list[Edit]:
    """Return the edits that mask the value of a key.

    Returns none if the key is not secret, or if its value cannot be a secret.

    Args:
        text: The text.
        start: The start of the key.
        end: The end of the key.
        keys: The names of secret keys.
        name: The key, if the text has it with escapes.
    """
    name = text[start:end] if name is None else name
    rule = keys.rule_of(name)
    if rule is None:
        return []
    key = Key(start, name, rule, keys)
    if assigned := _TEXT["assigned"].match(text, end):
        assigned_edit = _assigned_value(text, key, assigned)
        return [assigned_edit] if assigned_edit else []
    before = text[max(0, start - _BEFORE) : start]
    for place in PLACES:
        if not (place["before"].search(before) and place["key"].match(name)):
            continue
        edits: list[Edit] = []
        # A change of a session's state has two values: `value` and `expected`.
        while len(edits) < _MOST_VALUES and (after := place["after"].match(text, end)):
            groups = after.groupdict()
            if groups.get("content"):
                edit = _edit(text, *after.span("content"), key, "content")
            else:
                edit = _value_at(text, after.end(), key, quote=groups.get("quote"))
            if edit is None or not place["value"].match(text, edit.start, edit.end):
                break
            edits.append(edit)
            end = edit.end
        if edits:
            return edits
    return []


_MOST_VALUES = 2
"""The largest number of values that a key has in one place."""

_BEFORE = 90
"""How many characters before a key are examined."""

# --- Where the value is: after a sign.


def _assigned_value(text: str, key: Key, assigned: re.Match[str]) -> Edit | None:
    quote, before, sign, after = assigned.group("quote", "before", "sign", "after")
    at = assigned.end()
    if quote is None and ("\n" in before or (sign == ":" and before and not after)):
        return None  # as in `:param password: …`, or a role such as ":meth:" after a word
    if sign == ":" and quote is None:
        if typed := _TEXT["typed"].match(text, at):
            at = typed.end()
        elif before and "?" in text[max(0, key.start - 60) : key.start]:
            return None  # a conditional expression: `x ? token : other`
    opening = _TEXT["opening"].match(text, at)
    if opening is None and ("\n" in after or (sign in ("==", "===", "=>") and quote is None)):
        return None
    if opening is not None and quote is None:
        is_around = text[max(0, key.start - 1) : key.start] == opening[1][-1]
        if is_around or _TEXT["after_string"].match(text, opening.end()):
            return None  # the quote ends the string that holds the key
    return _value_at(text, at, key, quote=quote, sign=f"{before[:1]}{sign}")


def _value_at(
    text: str, at: int, key: Key, *, quote: str | None = None, sign: str = ""
) -> Edit | None:
    """Return the edit for the value that starts at `at`; None if it cannot be a secret.

    Args:
        text: The text.
        at: The start of the value.
        key: The key.
        quote: The quote after the key, which JSON has; None: the key has none.
        sign: The sign between key and value.
    """
    if text.startswith(MASK, at):
        return None
    if opening := _TEXT["opening"].match(text, at):
        end = _end_of_string(text, opening.end(), opening[1])
        return _edit(text, opening.end(), end, key, f"{sign}{opening[1]}")
    if quote is None:
        if header := key.rule in _HEADERS and _TEXT[key.rule].match(text, at):
            return _edit(text, *header.span(), key, "header")
        value = _TEXT["bare"].match(text, at)
        return value and _edit(text, *value.span(), key, f"{sign}bare")
    if text[at : at + 1] in ("{", "["):
        return _structure(text, at, key, quote)
    if value := _TEXT["bare_in_json"].match(text, at):
        edit = _edit(text, *value.span(), key, "json")
        return edit and edit._replace(replacement=f"{quote}{edit.replacement}{quote}")
    return None


# --- Whether the value is a secret.

_FILLERS = frozenset("your my the a an some".split())


def _edit(text: str, start: int, end: int, key: Key, how: str) -> Edit | None:
    """Return the edit that masks a value; None if the value is harmless."""
    value, before = text[start:end], text[max(0, key.start - _BEFORE) : key.start]
    if key.keys.rule_of(key.name, value) is None or is_harmless(value, key.name):
        return None
    for harmless in HARMLESS:
        if (
            harmless["how"].search(how)
            and harmless["rule"].match(key.rule)
            and harmless["value"].fullmatch(value)
            and harmless["after"].match(text, end)
            and harmless["before"].search(before)
        ):
            return None
    # A name of code that is itself the name of a secret repeats words of the key.
    if how.endswith("bare") and _TEXT["identifier"].fullmatch(value):
        last = re.split(r"\W+", value.rstrip("!?"))[-1]
        return None if key.keys.rule_of(last) else Edit(start, end, mask(key.rule))
    return Edit(start, end, mask(key.rule))


def is_harmless(value: str, key: str) -> bool:
    """Return whether the value of a secret key is a placeholder, or repeats words of the key."""
    if not any(map(str.isalnum, value)) or _TEXT["placeholder"].fullmatch(value):
        return True
    if len(value) > 200 or not _TEXT["words"].fullmatch(value):
        return False
    words, words_of_key = words_of(value).split("_"), words_of(key).split("_")
    if set(words) - _FILLERS <= set(words_of_key):
        return True
    return " " in value and any(word in value.lower() for word in words_of_key)


# --- Strings, objects and arrays.

_SCHEMA_CHARACTERS = 4000
"""How many characters of an object are examined to find out whether it is a JSON Schema."""


def _structure(text: str, at: int, key: Key, quote: str) -> Edit | None:
    """Return the edit for an object or array. Of a JSON Schema, only the default is masked."""
    is_empty = not text[at + 1 : at + 40].strip(" \r\n\t]}")
    if is_empty or key.keys.rule_of(key.name, ANY_VALUE) is None:
        return None
    if _TEXT["schema"].search(text, at, at + _SCHEMA_CHARACTERS):
        end = _end_of_structure(text[: at + _SCHEMA_CHARACTERS], at, quote)
        default = _TEXT["default"].search(text, at, end)
        return default and _value_at(text, default.end(), key, quote=default[1])
    return Edit(at, _end_of_structure(text, at, quote), f"{quote}{mask(key.rule)}{quote}")


def _end_of_string(text: str, start: int, opening: str) -> int:
    """Return the end of the string that starts at `start`. The string may be JSON inside JSON."""
    slashes, quote = len(opening) - 1, opening[-1]
    for match in _TEXT["quotes"].finditer(text, start):
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
    depth, at = 0, start
    while match := _TEXT["quotes_or_brackets"].search(text, at):
        at = match.end()
        if match[2]:
            if len(match[1]) < len(key_quote) - 1:
                return match.start()  # the surrounding string ends
            end = _end_of_string(text, at, match[0])
            if not text.startswith(match[0], end):
                return end
            at = end + len(match[0])
        elif match[0] in "[]{}":
            depth += 1 if match[0] in "[{" else -1
            if depth == 0:
                return at
    return len(text)
