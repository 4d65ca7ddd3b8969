"""Recognize keys whose values are secret, such as `password`.

Keys occur in JSON, in attributes and in texts such as `name=value`. The list of names comes from
OWASP's logging guidelines and from common HTTP headers and configuration files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

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

_STEMS = tuple(
    stem.replace("_", _BETWEEN)
    for stem in (
        *("pass_(?:word|wd|phrase)", "secret", "authori[sz]ation", "(?:api|private|access)_key"),
        *("cookie", "credential"),
    )
)
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
