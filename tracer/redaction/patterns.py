"""Recognize secrets by their form, such as `ghp_…`, whatever their key is.

Each pattern has a regular expression (`LinearRegex`), and the document that defines the form
(`source`). If the expression is not precise enough, `is_secret` checks each match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tracer.redaction.linear_regex import LinearRegex

Check = Callable[[str, int, int], bool]
"""Returns whether the part of a text between two positions is a secret."""


class ValuePattern(NamedTuple):
    """A pattern that recognizes one kind of secret by its form."""

    rule: str
    expression: str
    """In RE2's syntax. If it has a group, only the group is masked, otherwise the whole match."""
    source: str
    """The document that defines the form."""
    hint: str | None = None
    """An expression for a fast first check. It must match every text that contains such a secret,
    even if JSON escapes characters around the secret. None: `expression`."""
    is_secret: Check | None = None
    """Checks a match. None: every match is a secret."""
    captures: bool = True
    """Whether `(…)` in the expression is the part to mask."""


def _has_digit(text: str, start: int, end: int) -> bool:
    return any(each in _DIGITS for each in text[start:end])


_DIGITS = frozenset("0123456789")


def _is_card(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 1) : start], text[end : end + 2]
    if before.isascii() and (before.isalnum() or before in ("_", ".", "-")):
        return False
    if after[:1].isascii() and (after[:1].isalnum() or after[:1] == "_"):
        return False
    if after[:1] in (".", "-") and after[1:].isascii() and after[1:].isalnum():
        return False
    return _passes_luhn(text[start:end])


def _passes_luhn(number: str) -> bool:
    digits = [int(each) for each in reversed(number) if each in _DIGITS]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


_LETTERS = "[A-Za-z0-9]"
_URL_SAFE = "[A-Za-z0-9_-]"

_VISA, _MASTERCARD, _DISCOVER = "4[0-9]{3}", "(?:5[1-5]|2[2-7])[0-9]{2}", "6(?:011|5[0-9]{2})"
_BY_FOURS = f"(?:{_VISA}|{_MASTERCARD}|{_DISCOVER}|35[0-9]{{2}})"
_SPACED_CARD = f"{_BY_FOURS}(?:[ -][0-9]{{4}}){{3}}|3[47][0-9]{{2}}[ -][0-9]{{6}}[ -][0-9]{{5}}"
_PLAIN_CARD = (
    f"{_BY_FOURS}[0-9]{{12}}|4[0-9]{{12}}|3[47][0-9]{{13}}|3(?:0[0-5]|[68][0-9])[0-9]{{11}}"
)

_PEM = "-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END = _PEM.replace("BEGIN", "END")
_PEM_BODY = r'(?:-{0,4}(?:[^-"\\]|\\[^"]))*'
"""Matches the lines of a key, up to the five dashes of its last line. If the key was cut off, it
matches up to a quote, which ends the string."""


def _key(rule: str, form: str, source: str) -> ValuePattern:
    # In JSON, the letter of an escape such as `\\n` may precede it, which the hint allows.
    return ValuePattern(rule, rf"(?:\b|_)({form})", source, hint=form)


_AWS_IDS = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"

VALUE_PATTERNS: tuple[ValuePattern, ...] = (
    _key(
        "api_key",
        f"(?:sk|rk|pk)[-_]{_URL_SAFE}{{16,}}",
        "https://docs.stripe.com/keys; OpenAI's and Anthropic's keys begin like them",
    ),
    _key(
        "github_token",
        f"gh[pousr]_{_LETTERS}{{20,}}|github_pat_{_URL_SAFE}{{20,}}",
        "https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/",
    ),
    _key(
        "gitlab_token",
        f"glpat-{_URL_SAFE}{{16,}}",
        "https://docs.gitlab.com/security/tokens/",
    ),
    _key("aws_key", "A(?:KI|SI)A[A-Z0-9]{16,}", _AWS_IDS),
    _key(
        "slack_token",
        "xox[abeoprs]-[A-Za-z0-9-]{10,}",
        "https://docs.slack.dev/authentication/tokens",
    ),
    _key(
        "google_key",
        f"AIza{_URL_SAFE}{{30,}}",
        "https://cloud.google.com/docs/authentication/api-keys",
    ),
    _key(
        "huggingface_token",
        f"hf_{_LETTERS}{{20,}}",
        "https://huggingface.co/docs/hub/security-tokens",
    ),
    _key("tracer_key", f"tracer_{_URL_SAFE}{{32,}}", "tracer/records/access.py"),
    # Anchored to the start of a run of characters: otherwise each position in it would scan to its
    # end again.
    ValuePattern(
        "jwt",
        rf"(?:^|[^A-Za-z0-9_-])(eyJ{_URL_SAFE}{{8,}}\.{_URL_SAFE}{{8,}}\.{_URL_SAFE}*)",
        "RFC 7519",
        hint=rf"eyJ{_URL_SAFE}+\.{_URL_SAFE}+\.",
    ),
    ValuePattern(
        "bearer_token",
        r"(?:\b|_)[Bb](?i:earer) ([A-Za-z0-9._~+/=-]{8,})",
        "RFC 6750",
        hint="(?i:bearer) [A-Za-z0-9._~+/=-]{8}",
        is_secret=_has_digit,
    ),
    ValuePattern(
        "private_key",
        f"{_PEM}{_PEM_BODY}(?:{_PEM_END})?",
        "RFC 7468; RFC 9580 for `BLOCK`",
        hint="-----BEGIN ",
    ),
    ValuePattern(
        "url_password",
        r""":(?:\\?/){2}[^\s/:@"'\\]*:([^\s/"'\\]+)@""",
        "RFC 3986, section 3.2.1",
        hint=r"/[^ \t\r\n/@]*:[^ \t\r\n/@]+@",
    ),
    ValuePattern(
        "card_number",
        f"{_SPACED_CARD}|{_PLAIN_CARD}",
        "ISO/IEC 7812-1, which also defines the check digit",
        is_secret=_is_card,
    ),
)
"""The forms that are masked, unless redaction is off."""


def configured_patterns(setting: str) -> tuple[ValuePattern, ...]:
    """Return the patterns that a setting lists, separated by spaces.

    Raises:
        ValueError: RE2 does not support an expression, or an expression matches empty text or a
            mask.
    """
    return tuple(_configured_pattern(each) for each in setting.split())


def _configured_pattern(expression: str) -> ValuePattern:
    try:
        regex = LinearRegex(expression, captures=False)
    except ValueError:
        raise ValueError(
            "RE2 does not support one of the regular expressions: it has no look-around and "
            "no backreferences (https://github.com/google/re2/wiki/Syntax)"
        ) from None
    if regex.is_in("") or regex.is_in("[masked: own_pattern]"):
        raise ValueError(
            "one of the regular expressions matches empty text or a mask: make it match secrets "
            "only"
        )
    return ValuePattern(
        "own_pattern", expression, "TRACER_REDACT_VALUES", _hint_of(expression), captures=False
    )


_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[\^$]")
_ANCHORS = (r"\b", r"\B", r"\A", r"\z", "^", "$")


def _hint_of(expression: str) -> str:
    """Return the `hint` for an expression. It may match more texts than the expression.

    It also matches JSON texts in which the secret itself contains escaped characters.
    """
    hint = _PARTS.sub(lambda part: "" if part[0] in _ANCHORS else part[0], expression)
    try:
        LinearRegex(hint)
    except ValueError:  # such as `^*`, whose `*` remains alone
        return ""
    return rf"{hint}|\\[bfnrtu]"  # the escaped character may belong to the secret
