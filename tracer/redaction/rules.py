"""The rules that recognize secrets: by the name of their key, or by their form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]  # google-re2 has no type hints

# --- Regular expressions that take linear time, even for hostile expressions and texts.
#
# The engine is RE2 (https://github.com/google/re2/wiki/Syntax). RE2 has no look-around and no
# backreferences. `\d`, `\w`, `\s` and `\b` match ASCII characters only.


class LinearRegex:
    """A compiled regular expression."""

    def __init__(self, expression: str, *, captures: bool = True) -> None:
        """Compile an expression.

        Args:
            expression: An expression in RE2's syntax.
            captures: Whether groups `(…)` capture. If not, `spans` yields the spans of whole
                matches.

        Raises:
            ValueError: The expression is invalid, or RE2 does not support it. The message does not
                quote the expression, because it may reveal the form of secrets.
        """
        options = re2.Options()
        options.log_errors = False
        options.never_capture = not captures
        try:
            self._regex: Any = re2.compile(expression, options)
        except re2.error:
            raise ValueError("not a regular expression that RE2 supports") from None

    def is_in(self, text: str | bytes) -> bool:
        """Return whether the expression matches anywhere in a text or in UTF-8 bytes."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self._regex.search(data) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each match, in order.

        If the expression has groups, yield the start and end of the first group instead. Lone
        surrogates never match.
        """
        data = text.encode("utf-8", "surrogatepass")
        group = min(self._regex.groups, 1)
        if len(data) == len(text):
            for match in self._regex.finditer(data):
                yield match.span(group)
            return
        byte = character = 0
        for match in self._regex.finditer(data):
            positions = []
            for position in match.span(group):
                character += len(data[byte:position].decode("utf-8", "surrogatepass"))
                byte = position
                positions.append(character)
            yield positions[0], positions[1]


# --- Recognize keys whose values are secret, such as `password`.
#
# Keys occur in JSON, in attributes and in texts such as `name=value`. The list of names comes from
# OWASP's logging guidelines and from common HTTP headers and configuration files.

_TOKEN_SUFFIXES = "value|header|hash|string|secret|key|raw|text|id"
"""Words that may follow `token` in a key of a secret (`token_value`). With another word, such as in
`token_count` or `token_type`, the key is not secret."""

NAMES = {
    "password": "pass_words?|pass_wd",
    "passphrase": "pass_phrases?",
    "client_secret": "client_secrets?",
    "secret": "secrets?",
    "authorization": "(?:proxy_)?authori[sz]ation",
    "api_key": "api_keys?",
    "private_key": "private_keys?",
    "access_key": "access_keys?",
    "cookie": "cookies?",
    "credential": "credentials?",
    "token": "(?:access_|refresh_|auth_|id_|session_|bearer_)?"
    f"token(?=[0-9]*(?:$|_(?:{_TOKEN_SUFFIXES})$))",
}
"""Regular expressions for the words of secret keys, by the name of the rule. Here `_` matches one
underscore or nothing."""

_BETWEEN = r"[ \t\r\n_.-]?"

_SECRET_WORDS = (
    "pass_(?:word|wd|phrase) secret authori[sz]ation (?:api|private|access)_key cookie credential"
)
_STEMS = tuple(stem.replace("_", _BETWEEN) for stem in _SECRET_WORDS.split())
"""Expressions for parts of keys. Each secret key in `NAMES` matches one of them, or contains
`token`."""

_TOKEN_STEM = rf"token(?:[^a-z_.-]|[_.-]?(?:{_TOKEN_SUFFIXES})|$)"

_SPACE = r"[\s\v\x{1c}-\x{1f}\x{85}\pZ]"
_AFTER_STEM = (
    rf"[A-Za-z0-9_.-]{{0,64}}(?:(?:\\*[\"'])?{_SPACE}{{0,20}}(?::=|=>|={{1,3}}|:)|{_SPACE})"
)

_HARMLESS = re.compile(
    "_(?:at|budget|count|counts|enabled|endpoint|expiration|expires|expiry|field|file|ids|in|index"
    "|length|limit|limits|method|mode|name|path|policy|ref|reference|required|scheme|size|status"
    "|ttl|type|types|uri|url|usage|version)$"
)
"""Suffixes of keys whose values are not secret, such as `token_count`."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")


def _words_of(key: str) -> str:
    """Return the words of a key in lower case, joined by `_`: `apiKey` becomes `api_key`."""
    return _WORDS.sub("_", key).lower().strip("_")


def configured_keys(setting: str) -> tuple[str, ...]:
    """Return the keys that a setting lists, in the form that `SecretKeys` expects.

    Args:
        setting: The keys, separated by commas.

    Raises:
        ValueError: A key has no letters or digits, or does not have 2 to 40 characters.
    """
    return tuple(_configured_key(each) for each in setting.split(",") if each.strip())


def _configured_key(name: str) -> str:
    words = _words_of(name)
    if not re.fullmatch("[a-z0-9_]{2,40}", words):
        raise ValueError("write keys of 2 to 40 letters and digits, separated by commas")
    return words


class SecretKeys:
    """Recognizes keys whose values are secret.

    Upper and lower case, and separators such as `-`, make no difference.
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        """Recognize the keys of `NAMES` and those in `more`.

        Args:
            more: Further keys, in the form that `configured_keys` returns.
        """
        more = tuple(more)
        names = NAMES | {name: name for name in more}
        parts = [f"(?P<{_group(name)}>{_loose(words, '_?')})" for name, words in names.items()]
        self._rules = {_group(name): name for name in names}
        self._known = re.compile(f"(?:^|_)(?:{'|'.join(parts)})[0-9]*(?:_|$)")
        more_stems = [_loose(stem, _BETWEEN) for stem in more]
        stems = "|".join([*_STEMS, *more_stems])
        self.hint = f"(?i:{'|'.join([*_STEMS, _TOKEN_STEM, *more_stems])})"
        """An expression that matches every text that contains a secret key. It also matches some
        other texts. It is used as a fast first check."""
        self.candidate = f"(?i:({stems}|token)){_AFTER_STEM}"
        """An expression that finds possible secret keys before `=`, `:` or white space. Its group
        matches a part of the key."""
        self.rule_of = lru_cache(4096)(self._rule_of)
        """Returns the name of the rule that a key matches; None if the key is not secret."""

    def _rule_of(self, key: str) -> str | None:
        words = _words_of(key)
        match = self._known.search(words)
        if match is None or match.lastgroup is None or _HARMLESS.search(words):
            return None
        return self._rules[match.lastgroup]


def _group(name: str) -> str:
    return f"rule_{name}"


def _loose(words: str, between: str) -> str:
    return words.replace("_", between)


# --- Recognize secrets by their form, such as `ghp_…`, whatever their key is.
#
# Each pattern has a regular expression (`LinearRegex`), and the document that defines the form
# (`source`). If the expression is not precise enough, `is_secret` checks each match.

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
