"""Names of secrets: which keys of JSON, of attributes and of texts like `name=value` hold one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_OF_TOKENS = "value|header|hash|string|secret|key|raw|text|id"
"""What may follow when a token is meant that is a secret: models count, and type, the others."""

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
    f"token(?=[0-9]*(?:$|_(?:{_OF_TOKENS})$))",
}
"""What a key's words are, by the name of the rule. Between two words stands `_`, or nothing."""

_STEMS = (
    *("pass_(?:word|wd|phrase)", "secret", "authori[sz]ation", "(?:api|private|access)_key"),
    *("cookie", "credential", rf"token(?=[^a-z\x5f.-]|[\x5f.-]?(?:{_OF_TOKENS})|$)"),
)
"""What is in each such key, if only in one word of it; `_` may be any separator, `\\x5f` is one."""

_HARMLESS = re.compile(
    "_(?:at|budget|count|counts|enabled|endpoint|expiration|expires|expiry|field|file|ids|in|index"
    "|length|limit|limits|method|mode|name|path|policy|ref|reference|required|scheme|size|status"
    "|ttl|type|types|uri|url|usage|version)$"
)
"""What the key of something about a secret ends with, such as `token_count`."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")

_BETWEEN = "[ \t\r\n_.-]?"


def _words_of(key: str) -> str:
    """Return a key's words in lower case with `_` between them, however it was spelled."""
    return _WORDS.sub("_", key).lower().strip("_")


def key_name(name: str) -> str:
    """Return the rule's name for a key that somebody configured.

    Raises:
        ValueError: There is no word in it.
    """
    words = _words_of(name)
    if not re.fullmatch("[a-z0-9_]{2,40}", words):
        raise ValueError("name the keys in letters and digits, separated by commas")
    return words


class SecretKeys:
    """Knows the keys that hold a secret, in upper and lower case and with any separators."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        """Know some keys more.

        Args:
            more: As `key_name` returns them.
        """
        more = tuple(more)
        names = NAMES | {name: name for name in more}
        parts = [f"(?P<{_group(name)}>{_loose(words, '_?')})" for name, words in names.items()]
        self._rules = {_group(name): name for name in names}
        self._known = re.compile(f"(?:^|_)(?:{'|'.join(parts)})[0-9]*(?:_|$)")
        stems = [_loose(stem, _BETWEEN) for stem in (*_STEMS, *more)]
        self.stem = re.compile("|".join(stems))
        """What finds every such key in a text of lower case, and others."""
        # Rust's engine does not look ahead.
        self.hint = f"(?i:{self.stem.pattern.replace('(?=', '(?:')})"
        self.rule_of = lru_cache(4096)(self._rule_of)
        """Returns the name of the rule that a key falls under; None where it holds no secret."""

    def _rule_of(self, key: str) -> str | None:
        words = _words_of(key)
        found = self._known.search(words)
        if found is None or found.lastgroup is None or _HARMLESS.search(words):
            return None
        return self._rules[found.lastgroup]


def _group(name: str) -> str:
    return f"rule_{name}"


def _loose(words: str, between: str) -> str:
    return words.replace("_", between)
