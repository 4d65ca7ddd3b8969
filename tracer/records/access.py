"""Access: keys and sign-ins, and the scopes that they grant.

A secret has 256 random bits, so it cannot be guessed. A single round of SHA-256 is therefore as
safe as a slow password hash, and takes no time per request.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

KEY_PREFIX = "tracer_"
"""The prefix of keys, by which secret scanners recognise a leaked key."""

_SECRET_BYTES = 32


class Scope(StrEnum):
    """The actions that a key allows."""

    RECORD = "record"
    """Write events and spans."""
    READ = "read"
    """Read the project's records."""
    ADMIN = "admin"
    """All of that; start, cancel and delete runs; change the project's settings and keys."""


def lacking(scope: Scope) -> str:
    """Return the error message for a key that lacks a scope."""
    return (
        f"This key lacks the `{scope}` scope. Create a key with it on the server: "
        f"`tracer keys create NAME --scope {scope}`."
    )


@dataclass(frozen=True)
class Caller:
    """The authenticated author of a request, and their project."""

    project_id: int
    project: str
    """The project's name."""
    scopes: frozenset[Scope]
    key_id: UUID | None = None
    """None if no key was required."""
    key_name: str | None = None

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has a scope. `admin` includes all others."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


@dataclass(frozen=True)
class ApiKey:
    """The description of a key. The key itself is shown only once, when it is created."""

    key_id: UUID
    project: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewKey:
    """A key that was just created."""

    key: ApiKey
    secret: str
    """The secret that programs send. Only its digest is stored."""


def new_key() -> str:
    """Return a new key's secret."""
    return KEY_PREFIX + new_secret()


def new_secret() -> str:
    """Return 256 random bits as text for a header."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> bytes:
    """Return the digest of a secret, which is stored in its place."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()
