"""Who may do what: keys and sign-ins, and what they allow.

A secret is 256 random bits, so there is nothing to guess: one round of SHA-256 keeps it as safe as
a slow hash would, and costs a request nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

KEY_PREFIX = "tracer_"
"""What a key begins with, so that whoever looks for secrets that leaked knows one."""

_SECRET_BYTES = 32


class Scope(StrEnum):
    """What a key allows."""

    RECORD = "record"
    """To write events and spans."""
    READ = "read"
    """To read the project's records."""
    ADMIN = "admin"
    """Both; to start, cancel and delete runs, to say what is kept, to make and revoke keys."""


@dataclass(frozen=True)
class Caller:
    """Who asks, and for which project."""

    project_id: int
    project: str
    """The project's name."""
    scopes: frozenset[Scope]
    key_id: UUID | None = None
    """None where no key was needed."""
    key_name: str | None = None

    def may(self, scope: Scope) -> bool:
        """Return whether the caller may do what a scope allows."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


@dataclass(frozen=True)
class ApiKey:
    """What is told of a key. The key itself is told once, when it is made."""

    key_id: UUID
    project: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewKey:
    """A key that was just made."""

    key: ApiKey
    secret: str
    """What programs send. It is kept nowhere."""


def new_key() -> str:
    """Return a new key's secret."""
    return KEY_PREFIX + new_secret()


def new_secret() -> str:
    """Return 256 random bits as text that can stand in a header."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()
