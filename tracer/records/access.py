"""API keys, sign-ins and the scopes that they grant, and the settings of a project."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict
from uuid import UUID

from tracer.records.ids import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.records.masks import PayloadPolicy

# --- API keys, browser sign-ins, and the scopes that they grant.
#
# Only a SHA-256 digest of a secret is stored. A slow password hash is unnecessary, because a secret
# has 256 random bits and cannot be guessed.

KEY_PREFIX = "tracer_"
"""The prefix of keys, by which secret scanners recognise a leaked key."""

SIGNED_IN = timedelta(days=7)
"""How long a browser stays signed in."""

_SECRET_BYTES = 32


class Scope(StrEnum):
    """A group of actions that a key allows."""

    RECORD = "record"
    """Write events and spans."""
    READ = "read"
    """Read the project's records."""
    ADMIN = "admin"
    """Do all that `record` and `read` allow; start, cancel and delete runs; change the project's
    settings and keys."""


def lacking(scope: Scope) -> str:
    """Return the error message for a key that lacks a scope."""
    return (
        f"This key lacks the `{scope}` scope. Create a key with it on the server: "
        f"`tracer keys create NAME --scope {scope}`."
    )


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request, with their project and scopes."""

    project_id: int
    project: str
    """The project's name."""
    scopes: frozenset[Scope]
    key_id: UUID | None = None
    """The id of the caller's API key; None if the server requires no key."""
    key_name: str | None = None

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has a scope. The scope `admin` includes all other scopes."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


EVERYBODY = Caller(DEFAULT_PROJECT_ID, DEFAULT_PROJECT, frozenset({Scope.ADMIN}))
"""The caller of every request on a server without keys."""


@dataclass(frozen=True)
class ApiKey:
    """The description of an API key, without its secret.

    The secret is shown only once, when the key is created.
    """

    key_id: UUID
    project: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewKey:
    """A key that was just created, with its secret."""

    key: ApiKey
    secret: str
    """The secret that programs send. Only its digest is stored."""


def new_key() -> str:
    """Return a new secret for an API key, with the prefix `tracer_`."""
    return KEY_PREFIX + new_secret()


def new_secret() -> str:
    """Return 256 random bits as text that a URL or an HTTP header can contain."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> bytes:
    """Return the SHA-256 digest of a secret. Tracer stores only this digest."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


# --- The settings of a project: what it stores, and for how long.


@dataclass(frozen=True)
class ProjectSettings:
    """The settings of a project."""

    keep_days: int | None = None
    """Runs are deleted this many days after they ended. None: age is no reason for deletion."""
    keep_runs: int | None = None
    """The number of runs above which the oldest are deleted; None: no limit."""
    payloads: PayloadPolicy = PayloadPolicy.KEEP
    """How much of a payload is stored. A change affects only payloads that are recorded later."""


class SettingsChange(TypedDict, total=False):
    """A change of a project's settings. Settings that it does not contain stay unchanged."""

    keep_days: int | None
    keep_runs: int | None
    payloads: PayloadPolicy
