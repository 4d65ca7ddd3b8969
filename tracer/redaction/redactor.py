"""Redact texts: replace each secret by `[masked: RULE]`, and leave everything else unchanged.

A secret is recognized by its key, such as `"password": …` or `api_key=…`, or by its form
(`tracer.redaction.rules`). A text that parses as JSON is read string by string, and remains valid
JSON. Every other text is read once, with its escapes decoded. Redacting a text a second time does
not change it.
"""

from __future__ import annotations

import copy
import json
import math
import re
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import msgspec

from tracer.errors import TooManySecrets
from tracer.records.masks import A_MASK, MASK, mask, not_kept, payload_mark
from tracer.redaction import rules
from tracer.redaction.edits import Edit, View, apply, readable, united, within_json_string
from tracer.redaction.values import is_harmless, secret_values

MAX_WORK = 300_000
"""The largest amount of work on one text. Each possible secret that is examined counts 1. Each mask
counts `MASK_WORK`."""

MASK_WORK = 30

MAX_SECRETS = MAX_WORK // MASK_WORK
"""The largest number of secrets that are masked in one text. A text with more secrets is replaced
as a whole."""

MAX_TOTAL_WORK = 3_000_000
"""The largest amount of work on all texts of one write. This much work takes a few seconds."""

_ESCAPED_LETTER = r"\\u00(?:2d|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
"""Matches a letter or digit that JSON text escapes, because it may be a character of a secret."""


class Redaction:
    """A set of rules that masks secrets in texts."""

    def __init__(self, keys: Iterable[str] = (), values: Iterable[rules.LinearRegex] = ()) -> None:
        """Create a redaction with the rules of the table and additional rules.

        Args:
            keys: Additional secret keys, in the form that `configured_keys` returns.
            values: Additional patterns of secrets, in the form that `configured_patterns` returns.
        """
        self.keys = rules.SecretKeys(keys)
        self.forms = rules.Forms()
        self.own = list(values)
        by_form = [A_MASK.pattern, self.forms.starts, _ESCAPED_LETTER, _TEXT_DATA_START]
        self.starts = rules.LinearRegex(rules.any_of([*by_form, self.keys.starts]))
        """Matches masks, and where a secret or its key may start. A text without a match has no
        secret, unless a configured pattern matches."""
        self.form_starts = rules.LinearRegex(rules.any_of(by_form))
        """The same for texts whose keys are not examined."""
        self._is_on = True
        self._remaining = math.inf
        """How much work remains for all texts of one write."""

    @classmethod
    def off(cls) -> Redaction:
        """Return a redaction that masks nothing."""
        redaction = cls()
        redaction._is_on = False
        return redaction

    def of_write(self) -> Redaction:
        """Return a copy of this redaction that limits the work on all texts of one write together.

        The methods of the copy raise `TooManySecrets` if the work exceeds `MAX_TOTAL_WORK`.
        """
        redaction = copy.copy(self)
        redaction._remaining = MAX_TOTAL_WORK
        return redaction

    def may_hold_secret(self, text: str | bytes) -> bool:
        """Return False if a text contains no secret; True if it may contain one.

        This check takes only 2 to 4 µs per kilobyte.
        """
        return self._is_on and (bool(self.own) or self.starts.is_in(text))

    def rule_of(self, key: str, value: str | None = None) -> str | None:
        """Return the rule that an attribute's key matches; None if its value is not secret.

        Args:
            key: The key.
            value: The value; None: it is no text, or not known.
        """
        rule = self.keys.rule_of(key, value) if self._is_on else None
        return None if rule is None or (value is not None and is_harmless(value, key)) else rule

    def text(self, text: str) -> str:
        """Mask the secrets in a text. They are recognized by their keys and by their form.

        If the text contains more than `MAX_SECRETS` secrets, it is replaced as a whole by `[masked:
        payload of N bytes]`.
        """
        return self._redacted(text, has_keys=True)

    def value(self, text: str) -> str:
        """Mask the secrets in a text without keys, such as a name. Only their form is examined."""
        return self._redacted(text, has_keys=False)

    def _redacted(self, text: str, *, has_keys: bool) -> str:
        reading = _Reading(self, has_keys)
        if not self._is_on or not reading.may_hold_secret(text):
            return text  # the usual case
        mark = not_kept(text)
        size = "" if mark is None else mark[0]
        front = text[: len(text) - len(size)]
        try:
            redacted = apply(front, self._around_data(front, reading.edits(front)))
        except _TooMuchWork:
            redacted = ""
            all_bytes = int(mark[1]) if mark else len(text.encode("utf-8", "surrogatepass"))
            size = payload_mark(all_bytes)
        self._remaining -= reading.work
        if self._remaining < 0:
            raise TooManySecrets
        return redacted + size

    def _around_data(self, text: str, edits: list[Edit]) -> list[Edit]:
        """Return edits without those inside the data of pictures and sounds.

        Such data matches the forms of secrets by chance. Data that is text is decoded, and redacted
        as a text of its own.
        """
        if "base64," not in text:
            return edits
        shown = [match.span(1) for match in _SHOWN_DATA.finditer(text)]
        kept = [
            edit
            for edit in edits
            if not any(start <= edit.start and edit.end <= end for start, end in shown)
        ]
        for match in _TEXT_DATA.finditer(text):
            with suppress(ValueError):  # it is not base64
                data = b64decode(match[1].replace("\\", "") + "==").decode(errors="replace")
                if (redacted := self.text(data)) != data:
                    kept.append(Edit(*match.span(1), b64encode(redacted.encode()).decode()))
        return united(text, kept)


# --- Read one text.

# The types that the viewer shows.
_SHOWN_DATA = re.compile(
    "data:(?:image/(?:png|jpeg|gif|webp|avif)|audio/(?:mp3|mpeg|wav|x-wav|ogg)|video/(?:mp4|webm))"
    r"(?:;[\w.=+-]+)*;base64,([A-Za-z0-9+/=\\]+)"
)
_TEXT_DATA_START = "data:(?:text/|application/json|image/svg)"
_TEXT_DATA = re.compile(rf"{_TEXT_DATA_START}[\w.+-]*(?:;[\w.=+-]+)*;base64,([A-Za-z0-9+/=\\]+)")

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_STRING, _KEY, _NUMBER = range(1, 4)
"""The groups of the pattern `json_token`. A key is a string followed by a colon."""


class _TooMuchWork(Exception):
    """A text contains more secrets, or possible secrets, than can be examined."""


class _Reading:
    """Finds the secrets of one text, and counts the work."""

    def __init__(self, redaction: Redaction, has_keys: bool) -> None:
        self._rules = redaction
        self._starts = redaction.starts if has_keys else redaction.form_starts
        self._has_keys = has_keys
        self.work = 0

    def may_hold_secret(self, text: str) -> bool:
        return bool(self._rules.own) or self._starts.is_in(text)

    def edits(self, text: str) -> list[Edit]:
        """Return the edits that mask the secrets of a text, sorted."""
        if not self.may_hold_secret(text):
            return []
        return united(text, self._in_json(text) if _is_json(text) else self._in_text(text))

    def _add(self, edits: list[Edit], found: list[Edit]) -> tuple[int, int] | None:
        """Add the edits for a possible secret, and return the span that they cover, if any."""
        self.work += 1 + MASK_WORK * len(found)
        if self.work > MAX_WORK:
            raise _TooMuchWork
        edits += found
        return (found[0].start, found[-1].end) if found else None

    def _in_text(self, text: str) -> list[Edit]:
        view = readable(text)
        edits: list[Edit] = []
        hidden = (0, 0)
        for start, end in self._starts.spans(view.text):
            if not hidden[0] <= view.span_of(start)[0] < hidden[1]:
                hidden = self._add(edits, self._secrets_at(text, view, start, end)) or hidden
        for pattern in self._rules.own:
            for start, end in pattern.spans(text):
                self._add(edits, [Edit(start, end, mask("own_pattern"))])
        return edits

    def _secrets_at(self, text: str, view: View, start: int, end: int) -> list[Edit]:
        """Return the edits for the key or the form that begins at a position of a view."""
        if secret := self._rules.forms.secret_at(view.text, start, view.removed):
            return [view.original(Edit(*secret))]
        if not self._has_keys or view.text.startswith(MASK, start):
            return []
        start, end = _key_around(view.text, start, end, view.removed)
        # The text itself comes first: an escape may belong to the value.
        key = view.original(Edit(start, end, ""))
        found = secret_values(text, key.start, key.end, self._rules.keys)
        if found or not view.escapes:
            return found
        return list(map(view.original, secret_values(view.text, start, end, self._rules.keys)))

    def _in_json(self, text: str) -> list[Edit]:
        """Return the edits that mask the secrets of a JSON text.

        A regular expression finds the tokens and their positions, without building Python values.
        The value of each string is examined as a text of its own, because it may contain JSON. Each
        level of JSON inside strings doubles the backslashes, so there are few levels.
        """
        edits: list[Edit] = []
        hints = iter([(0, len(text))]) if self._rules.own else self._starts.spans(text)
        hint = next(hints, None)
        hidden = (0, 0)
        for token in rules.TEXT["json_token"].finditer(text):
            start, end = token.span()
            while hint and hint[1] <= start:
                hint = next(hints, None)
            if hint is None:
                break
            if end <= hint[0] or hidden[0] <= start < hidden[1]:
                continue
            found: list[Edit] = []
            kind = token.lastindex
            if kind == _NUMBER:
                if self._rules.own and (number := self.edits(token[0])):
                    found = [Edit(start, end, f'"{number[0].replacement}"')]
            elif kind is not None:
                raw, start = token[1], token.start(1)
                value = json.loads(f'"{raw}"', strict=False) if "\\" in raw else raw
                edits += within_json_string(raw, self.edits(value), start)
                if self._has_keys and (kind == _KEY or len(value) <= rules.MAX_KEY_CHARACTERS):
                    found = secret_values(text, start, token.end(1), self._rules.keys, value)
            hidden = self._add(edits, found) or hidden
        return edits


def _key_around(text: str, start: int, end: int, removed: list[int]) -> tuple[int, int]:
    """Return the start and end of the whole key that contains the letters of `text[start:end]`."""
    if stem := rules.TEXT["key_stem"].search(text, start, end):
        start, end = stem.span()
    at = bisect_right(removed, start)
    first = max(removed[at - 1] if at else 0, start - rules.MAX_KEY_CHARACTERS // 2)
    before = rules.TEXT["key_before"].search(text, first, start)
    after = rules.TEXT["key_after"].match(text, end)
    return before.start() if before else start, after.end() if after else end


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object, array or string.

    Returns False for JSON that nests too deeply, so that it is examined as plain text.
    """
    if text.lstrip(" \t\r\n")[:1] not in ("{", "[", '"'):
        return False
    try:  # msgspec rejects lone surrogates, which JSON allows
        msgspec.json.decode(_SURROGATE.sub(r"\\u0020", text), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


@cache
def standard_redaction() -> Redaction:
    """Return the redaction that has only the rules of the table."""
    return Redaction()
