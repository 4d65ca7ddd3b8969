"""Redact texts: replace each secret by `[masked: RULE]`, and leave everything else unchanged.

A secret is recognized by its key, such as `"password": …` or `api_key=…`, or by its form
(`tracer.redaction.rules`). A text that parses as JSON is read string by string, and remains valid
JSON. Every other text is read once, with its escapes decoded. Redacting a text a second time does
not change it.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache

import msgspec

from tracer.errors import TooManySecrets
from tracer.records.masks import mask, not_kept, payload_mark
from tracer.redaction import rules
from tracer.redaction.edits import Edit, apply, json_view, masks_in, readable, united
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

_TOKENS_PER_WORK = 16
"""How many JSON tokens count as much work as one possible secret."""

_MAX_NESTED = 10
"""How many levels of JSON inside JSON strings are read as JSON. Each level doubles the backslashes
before a quote, so at level ten a quote takes a kilobyte."""

_ESCAPED_LETTER = r"\\u00(?:2d|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
"""Matches a letter or digit that JSON text escapes, because it may be a character of a secret."""


class Redaction:
    """A set of rules that masks secrets in texts."""

    def __init__(self, keys: Iterable[str] = (), values: Iterable[rules.ValuePattern] = ()) -> None:
        """Create a redaction with the rules of the table and additional rules.

        Args:
            keys: Additional secret keys, in the form that `configured_keys` returns.
            values: Additional patterns of secrets, in the form that `configured_patterns` returns.
        """
        self.keys = rules.SecretKeys(keys)
        self.forms = rules.Forms()
        self.own = [(each, rules.LinearRegex(each.expression)) for each in values]
        by_form = [self.forms.starts, _ESCAPED_LETTER]
        self.starts = rules.LinearRegex(rules.any_of([self.keys.starts, *by_form]))
        """Matches where a secret or its key may start. A text without a match has no secret, unless
        a configured pattern matches."""
        self.form_starts = rules.LinearRegex(rules.any_of(by_form))
        """The same for texts whose keys are not examined."""
        self._is_on = True
        self._total: list[int] | None = None
        """How much work remains for all texts of one write; None: there is no such limit."""

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
        redaction._total = [MAX_TOTAL_WORK]
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
            redacted = apply(front, reading.edits(front))
        except _TooMuchWork:
            redacted = ""
            all_bytes = int(mark[1]) if mark else len(text.encode("utf-8", "surrogatepass"))
            size = payload_mark(all_bytes)
        if self._total is not None:
            self._total[0] -= reading.work + reading.tokens // _TOKENS_PER_WORK
            if self._total[0] < 0:
                raise TooManySecrets
        return redacted + size


# --- Read one text.

_BEGINNING = re.compile(r"""[ \t\r\n]*[\[{"]""")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_STRING, _KEY, _NUMBER = range(1, 4)
"""The groups of the pattern `json_token`. A key is a string followed by a colon."""

_NOWHERE = (sys.maxsize, sys.maxsize)


class _TooMuchWork(Exception):
    """A text contains more secrets, or possible secrets, than can be examined."""


class _Reading:
    """Finds the secrets of one text, and counts the work."""

    def __init__(self, redaction: Redaction, has_keys: bool) -> None:
        self._rules = redaction
        self._starts = redaction.starts if has_keys else redaction.form_starts
        self._has_keys = has_keys
        self.work = 0
        self.tokens = 0

    def _count(self, work: int = 1) -> None:
        self.work += work
        if self.work > MAX_WORK:
            raise _TooMuchWork

    def may_hold_secret(self, text: str) -> bool:
        return bool(self._rules.own) or self._starts.is_in(text)

    def edits(self, text: str, level: int = 0) -> list[Edit]:
        """Return the edits that mask the secrets of a text, sorted."""
        if not self.may_hold_secret(text):
            return []
        is_read_as_json = level < _MAX_NESTED and _is_json(text)
        return united(text, self._in_json(text, level) if is_read_as_json else self._in_text(text))

    def _add(self, edits: list[Edit], new: list[Edit]) -> tuple[int, int]:
        """Add edits, and return the span of the last one."""
        self._count(MASK_WORK * len(new))
        edits += new
        return new[-1].start, new[-1].end

    def _in_text(self, text: str) -> list[Edit]:
        view = readable(text)
        shown = text if view is None else view.text
        removed = [] if view is None else view.removed
        edits: list[Edit] = []
        masks = iter([*masks_in(text), _NOWHERE])
        hidden = next(masks)
        skipped = (0, 0)
        for start, end in self._starts.spans(shown):
            self._count()
            at = start if view is None else view.start_of(start)
            while hidden[1] <= at:
                hidden = next(masks)
            if hidden[0] <= at or skipped[0] <= at < skipped[1]:
                continue
            found: list[Edit] = []
            if secret := self._rules.forms.secret_at(shown, start, removed):
                found = [Edit(*secret)]
            elif self._has_keys:
                start, end = _key_around(shown, start, end, removed)
                if view is not None:
                    # The text itself comes first: an escape may belong to the value.
                    key = view.original(Edit(start, end, ""))
                    if edits_of_text := secret_values(text, key.start, key.end, self._rules.keys):
                        skipped = self._add(edits, edits_of_text)
                        continue
                found = secret_values(shown, start, end, self._rules.keys)
            if found:
                found = found if view is None else [view.original(edit) for edit in found]
                skipped = self._add(edits, found)
        for pattern, regex in self._rules.own:
            for start, end in regex.spans(text):
                self._count()
                if pattern.is_secret is None or pattern.is_secret(text, start, end):
                    self._add(edits, [Edit(start, end, mask(pattern.rule))])
        return edits

    def _in_json(self, text: str, level: int) -> list[Edit]:
        """Return the edits that mask the secrets of a JSON text.

        A regular expression finds the tokens and their positions, without building Python values.
        The value of each string is examined as a text of its own, because it may contain JSON.
        """
        edits: list[Edit] = []
        hints = iter([(0, len(text))]) if self._rules.own else self._starts.spans(text)
        hint = next(hints, _NOWHERE)
        skipped = (0, 0)
        for token in rules.TEXT["json_token"].finditer(text):
            self.tokens += 1
            start, end = token.span()
            while hint[1] <= start:
                hint = next(hints, _NOWHERE)
            if hint == _NOWHERE:
                break
            if end <= hint[0] or skipped[0] <= start < skipped[1]:
                continue
            kind = token.lastindex
            if kind == _NUMBER:
                if self._rules.own and (found := self.edits(token[0], level)):
                    self._add(edits, [Edit(start, end, f'"{found[0].replacement}"')])
            elif kind is not None:
                raw, start = token[1], token.start(1)
                value = json.loads(f'"{raw}"', strict=False) if "\\" in raw else raw
                edits += _within_string(raw, self.edits(value, level + 1), start)
                if self._has_keys and (kind == _KEY or len(value) <= rules.MAX_KEY_CHARACTERS):
                    named = secret_values(text, start, token.end(1), self._rules.keys, value)
                    skipped = self._add(edits, named) if named else skipped
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
    if _BEGINNING.match(text) is None:
        return False
    if "\\u" in text:  # msgspec rejects lone surrogates, which JSON allows
        text = _SURROGATE.sub(r"\\u0020", text)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _within_string(raw: str, edits: list[Edit], offset: int) -> list[Edit]:
    """Return edits of a JSON string's value as edits of the text that contains the string."""
    if edits and "\\" in raw:
        view = json_view(raw)
        edits = [view.original(edit) for edit in edits]
    return [
        Edit(start + offset, end + offset, json.dumps(text, ensure_ascii=False)[1:-1])
        for start, end, text in edits
    ]


@cache
def standard_redaction() -> Redaction:
    """Return the redaction that has only the rules of the table."""
    return Redaction()
