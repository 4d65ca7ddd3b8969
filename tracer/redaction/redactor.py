"""Redact texts: replace each secret by `[masked: RULE]`, and leave everything else unchanged.

A secret is recognized by its key, such as `"password": …` or `api_key=…` (`tracer.redaction.keys`),
or by its form (`tracer.redaction.patterns`). JSON remains valid JSON. Redacting a text a second
time does not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from tracer.errors import TooManySecrets
from tracer.records.masks import not_kept, payload_mark
from tracer.redaction.edits import Edit, TooMuchWork, WorkCounter, apply, united
from tracer.redaction.json_edits import is_json, json_edits
from tracer.redaction.keys import SecretKeys
from tracer.redaction.linear_regex import LinearRegex
from tracer.redaction.patterns import VALUE_PATTERNS, ValuePattern
from tracer.redaction.text_rules import MAX_KEY_CHARACTERS, key_edits, value_edits

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
