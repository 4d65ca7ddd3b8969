"""Values that are secrets whatever they are called: keys, tokens, passwords in URLs, card numbers.

Each pattern is looked for in two ways. Its hint is for Rust's engine, which takes linear time and
says quickly that a text has none; its pattern is for what may have one, and takes linear time, too:
each repetition is bounded, possessive, or begins with what it cannot contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class SecretValue(NamedTuple):
    """One form of secret."""

    rule: str
    hint: str
    """What every such secret has, in what Rust's and Python's expressions have in common."""
    pattern: re.Pattern[str]
    """What is masked: all of it, or its group `masked`."""
    is_real: Callable[[re.Match[str]], bool] = lambda found: True
    """Whether what the pattern finds is one."""


_W = "[A-Za-z0-9_-]"


# Not by looking behind, which would have the pattern tried at each character.
def _stands_alone(found: re.Match[str]) -> bool:
    before = found.string[found.start() - 1 : found.start()]
    return not (before.isascii() and before.isalnum())


def _is_card(found: re.Match[str]) -> bool:
    if found.string[found.start() - 1 : found.start()] in ("_", ".", "-"):
        return False
    return _stands_alone(found) and _passes_luhn(found[0])


def _passes_luhn(number: str) -> bool:
    digits = [int(each) for each in reversed(number) if each.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _key(rule: str, prefix: str, least: int, most: int, letters: str = _W) -> SecretValue:
    """Return the form of keys that begin with `prefix`, and so many letters."""
    return SecretValue(
        rule,
        f"{prefix}{letters}{{{least}}}",
        re.compile(f"{prefix}{letters}{{{least},{most}}}"),
        _stands_alone,
    )


_VISA, _MASTERCARD, _DISCOVER = "4[0-9]{3}", "(?:5[1-5]|2[2-7])[0-9]{2}", "6(?:011|5[0-9]{2})"
_BY_FOURS = f"(?:{_VISA}|{_MASTERCARD}|{_DISCOVER}|35[0-9]{{2}})"
_SPACED_CARD = f"{_BY_FOURS}(?:[ -][0-9]{{4}}){{3}}|3[47][0-9]{{2}}[ -][0-9]{{6}}[ -][0-9]{{5}}"
_PLAIN_CARD = (
    f"{_BY_FOURS}[0-9]{{12}}|4[0-9]{{12}}|3[47][0-9]{{13}}|3(?:0[0-5]|[68][0-9])[0-9]{{11}}"
)

_PEM = "-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END = _PEM.replace("BEGIN", "END")

SECRET_VALUES: tuple[SecretValue, ...] = (
    _key("api_key", "(?:sk|rk|pk)[-_]", 16, 200),
    _key("github_token", "gh[pousr]_", 20, 255, "[A-Za-z0-9]"),
    _key("github_token", "github_pat_", 20, 255),
    _key("gitlab_token", "glpat-", 16, 200),
    _key("aws_key", "A(?:KI|SI)A", 16, 16, "[A-Z0-9]"),
    _key("slack_token", "xox[abeoprs]-", 10, 250, "[A-Za-z0-9-]"),
    _key("google_key", "AIza", 30, 50),
    _key("huggingface_token", "hf_", 20, 100, "[A-Za-z0-9]"),
    _key("tracer_key", "tracer_", 32, 100),
    SecretValue(
        "jwt",
        rf"eyJ{_W}+\.{_W}+\.",
        re.compile(rf"(?<!{_W})eyJ{_W}{{8,}}+\.{_W}{{8,}}+\.{_W}*+"),
    ),
    SecretValue(
        "bearer_token",
        "(?i:bearer) [A-Za-z0-9._~+/=-]{8}",
        re.compile(
            "[Bb](?i:earer) (?=[A-Za-z._~+/=-]{0,200}[0-9])(?P<masked>[A-Za-z0-9._~+/=-]{8,}+)"
        ),
        _stands_alone,
    ),
    SecretValue(
        "private_key",
        "-----BEGIN ",
        re.compile(rf'{_PEM}(?:[^-"\\]|-(?!----)|\\(?!"))*+(?:{_PEM_END})?'),
    ),
    SecretValue(
        "url_password",
        r"/[^ \t\r\n/@]*:[^ \t\r\n/@]+@",
        re.compile(
            r""":(?:\\?/){2}[^\s/:@"'\\]{0,200}:(?P<masked>[^\s/"'\\]{1,500})@""",
        ),
    ),
    SecretValue(
        "card_number",
        f"{_SPACED_CARD}|{_PLAIN_CARD}",
        re.compile(f"(?:{_SPACED_CARD}|{_PLAIN_CARD})(?![A-Za-z0-9_]|[.-][A-Za-z0-9])"),
        _is_card,
    ),
)
"""What is looked for unless masking is off."""


def own_pattern(expression: str) -> SecretValue:
    """Return the form of secret that a regular expression describes.

    Raises:
        ValueError: Python cannot read it, or it finds secrets in nothing at all.
    """
    try:
        found = re.compile(expression)
    except re.error as error:
        # What it says is not repeated: it may tell what secrets look like.
        raise ValueError(f"one of them is no regular expression: {error.msg}") from None
    if found.search("") or found.search("[masked: own_pattern]"):
        raise ValueError("one of the regular expressions finds secrets where there are none")
    return SecretValue("own_pattern", expression, found)
