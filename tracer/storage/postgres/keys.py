"""API keys, and the authentication of callers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal
from uuid import UUID

from psycopg.errors import CheckViolation

from tracer.clock import Clock, utc_now
from tracer.errors import BadRequest, NotAllowed, NotIdentified, RecordNotFound, StoreUnavailable
from tracer.logs import get_logger
from tracer.records import new_id
from tracer.records.access import (
    SIGNED_IN,
    ApiKey,
    Caller,
    NewKey,
    Scope,
    digest,
    lacking,
    new_key,
    new_secret,
)
from tracer.redaction import standard_redaction
from tracer.storage.postgres.pool import Pool, PoolConnection, pooled_connection, store_errors
from tracer.storage.postgres.projects import SingleFlight, list_projects
from tracer.storage.postgres.session import ProjectPool, in_project
from tracer.text import storable

# --- The keys of a project: creation, listing and revocation.

FIRST_KEY = "first key"


_COLUMNS = """api_key.key_id, project.name, api_key.name, api_key.scopes, api_key.created_at,
    api_key.last_used_at, api_key.revoked_at"""

_LIST = f"""
SELECT {_COLUMNS} FROM api_key JOIN project USING (project_id)
WHERE project_id = %s ORDER BY api_key.created_at, api_key.key_id"""

_HAS_KEYS = "SELECT EXISTS (SELECT 1 FROM api_key)"

_HAS_RUNS = "SELECT EXISTS (SELECT 1 FROM run WHERE project_id = %s AND deleted_at IS NULL)"

_REVOKE = """
UPDATE api_key SET revoked_at = coalesce(revoked_at, %s)
WHERE project_id = %s AND key_id = %s RETURNING key_id"""

_INSERT = f"""
WITH api_key AS (
    INSERT INTO api_key (key_id, project_id, name, scopes, digest, created_at)
    VALUES (%(key)s, %(project_id)s, %(name)s, %(scopes)s, %(digest)s, %(now)s)
    RETURNING key_id, project_id, name, scopes, created_at, last_used_at, revoked_at
)
SELECT {_COLUMNS} FROM api_key JOIN project USING (project_id)"""


class ApiKeys:
    """The keys of one project."""

    def __init__(self, project: ProjectPool, clock: Clock = utc_now) -> None:
        self._project = project
        self._clock = clock

    async def create(self, name: str, scopes: Iterable[Scope]) -> NewKey:
        """Create a key, and return it with its secret, which is shown only this once.

        Args:
            name: The key's purpose, or its owner.
            scopes: The allowed actions.

        Raises:
            BadRequest: The name is empty or longer than 100 characters, or there are no scopes.
            StoreUnavailable: The database does not answer.
        """
        with _checked(), store_errors():
            async with in_project(self._project) as connection:
                project_id = self._project.project_id
                return await _insert(connection, project_id, name, scopes, self._clock)

    async def list_keys(self) -> list[ApiKey]:
        """Return the keys, including revoked ones, oldest first."""
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_LIST, [self._project.project_id])
                return [_api_key(row) for row in await cursor.fetchall()]

    async def revoke(self, key_id: UUID) -> None:
        """Revoke a key. A revoked key stays revoked.

        Raises:
            RecordNotFound: The project has no such key.
        """
        with store_errors():
            async with in_project(self._project) as connection:
                values = [self._clock(), self._project.project_id, key_id]
                cursor = await connection.execute(_REVOKE, values)
                if await cursor.fetchone() is None:
                    raise RecordNotFound("key", key_id)


async def closed_by_first_key(pool: Pool, project: str) -> list[str] | None:
    """Return the projects that become inaccessible when `project` gets the server's first key.

    Only projects with runs are returned. Return None if the server has, or ever had, a key.
    """
    with store_errors():
        async with pooled_connection(pool) as connection:
            if await _has_keys(connection):
                return None
    others = [each for each in (await list_projects(pool)).items() if each[0] != storable(project)]
    return [name for name, project_id in others if await _has_runs(ProjectPool(pool, project_id))]


async def _has_keys(connection: PoolConnection) -> bool:
    cursor = await connection.execute(_HAS_KEYS)
    return await cursor.fetchone() == (True,)


async def _has_runs(project: ProjectPool) -> bool:
    with store_errors():
        async with in_project(project) as connection:
            cursor = await connection.execute(_HAS_RUNS, [project.project_id])
            return await cursor.fetchone() == (True,)


async def make_first_key(pool: Pool, project_id: int, clock: Clock = utc_now) -> NewKey | None:
    """Create a key with all scopes for a project. None if any project has, or ever had, a key."""
    with store_errors():
        async with pooled_connection(pool) as connection, connection.transaction():
            await connection.execute("LOCK TABLE api_key IN SHARE ROW EXCLUSIVE MODE")
            if await _has_keys(connection):
                return None
            return await _insert(connection, project_id, FIRST_KEY, [Scope.ADMIN], clock)


async def _insert(
    connection: PoolConnection, project_id: int, name: str, scopes: Iterable[Scope], clock: Clock
) -> NewKey:
    secret = new_key()
    values = {
        "project_id": project_id,
        "key": new_id(),
        "name": standard_redaction().value(storable(name.strip())),
        "scopes": sorted({scope.value for scope in scopes}),
        "digest": digest(secret),
        "now": clock(),
    }
    cursor = await connection.execute(_INSERT, values)
    [row] = await cursor.fetchall()
    return NewKey(_api_key(row), secret)


@contextmanager
def _checked() -> Iterator[None]:
    try:
        yield
    except CheckViolation:
        raise BadRequest(
            "A key needs a name of 1 to 100 characters, and at least one of the scopes "
            f"{', '.join(Scope)}."
        ) from None


def _api_key(row: tuple[Any, ...]) -> ApiKey:
    key_id, project, name, scopes, *moments = row
    return ApiKey(key_id, project, name, [Scope(each) for each in scopes], *moments)


# --- Authentication: finds the owners of keys and sign-ins, with a short-lived cache.
#
# The project is not known before the key is found. So the queries run as the tables' owner, without
# row-level security.

KNOWN_SECONDS = 2.0
"""How long a key is cached. A revoked key stops working on other servers after this time."""

MAX_CACHED = 10_000
"""The largest number of cached secrets, including invalid ones."""

USED_AGAIN = timedelta(minutes=1)
"""The least interval between updates of a key's last use."""

log = get_logger(__name__)


_Credential = tuple[Literal["key", "sign-in"], bytes]
"""A secret's kind and digest. A cache by digest alone would accept a key as a cookie."""


UNKNOWN_KEY = (
    "This key does not exist, or was revoked. Check that it is complete, or create another one on "
    "the server: `tracer keys create NAME`."
)


_CALLER = "api_key.project_id, project.name, api_key.scopes, api_key.key_id, api_key.name"

_BY_KEY = f"""
SELECT {_CALLER}, api_key.last_used_at FROM api_key JOIN project USING (project_id)
WHERE api_key.digest = %s AND api_key.revoked_at IS NULL"""

_BY_SIGN_IN = f"""
SELECT {_CALLER} FROM sign_in JOIN api_key USING (key_id) JOIN project USING (project_id)
WHERE sign_in.digest = %s AND sign_in.expires_at > %s AND api_key.revoked_at IS NULL"""

_DELETE_EXPIRED_SIGN_INS = "DELETE FROM sign_in WHERE expires_at <= %s"

_INSERT_SIGN_IN = "INSERT INTO sign_in (digest, key_id, expires_at) VALUES (%s, %s, %s)"

_DELETE_SIGN_IN = "DELETE FROM sign_in WHERE digest = %s"

_NOTE_USE = """
UPDATE api_key SET last_used_at = %s
WHERE key_id = %s AND (last_used_at IS NULL OR last_used_at <= %s)"""


class Authenticator:
    """Authenticates requests."""

    def __init__(
        self, pool: Pool, clock: Clock = utc_now, known_seconds: float = KNOWN_SECONDS
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._known_seconds = known_seconds
        self._known: dict[_Credential, tuple[float, Caller | None]] = {}
        self._own: dict[bytes, Caller] = {}
        self._keys_needed: tuple[float, bool] = (0, False)
        self._keys_flight = SingleFlight[bool]()
        self._callers_flight = SingleFlight[Caller | None]()

    async def are_keys_needed(self) -> bool:
        """Return whether a key was ever created. If so, every request must have one.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        until, are_needed = self._keys_needed
        if not are_needed and time.monotonic() >= until:
            return await self._keys_flight.run("keys", self._find_whether_keys_are_needed)
        return are_needed

    def own_key(self, caller: Caller) -> str:
        """Return a key for requests of this process. No other process knows the key."""
        secret = new_key()
        self._own[digest(secret)] = caller
        return secret

    async def by_key(self, key: str) -> Caller:
        """Return the caller that a key identifies.

        Raises:
            NotIdentified: The key does not exist, or was revoked.
            StoreUnavailable: The database does not answer.
        """
        key_digest = digest(key)
        own = self._own.get(key_digest)
        return own or await self._caller(("key", key_digest), self._find_by_key, UNKNOWN_KEY)

    async def by_sign_in(self, secret: str) -> Caller:
        """Return the caller that the secret of a sign-in identifies.

        Raises:
            NotIdentified: The sign-in does not exist, or has expired.
            StoreUnavailable: The database does not answer.
        """
        return await self._caller(
            ("sign-in", digest(secret)),
            self._find_by_sign_in,
            "The sign-in has expired. Sign in again.",
        )

    async def sign_in(self, key: str) -> tuple[str, Caller]:
        """Sign a browser in with a key. Return the sign-in's secret and the caller.

        Raises:
            NotIdentified: The key does not exist, or was revoked.
            NotAllowed: The key lacks the scope `read`.
            StoreUnavailable: The database does not answer.
        """
        caller = await self.by_key(key)
        if caller.key_id is None or not caller.may(Scope.READ):
            raise NotAllowed(lacking(Scope.READ))
        secret, now = new_secret(), self._clock()
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                await connection.execute(_DELETE_EXPIRED_SIGN_INS, [now])
                values = [digest(secret), caller.key_id, now + SIGNED_IN]
                await connection.execute(_INSERT_SIGN_IN, values)
        return secret, caller

    async def sign_out(self, secret: str) -> None:
        """End a sign-in.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                await connection.execute(_DELETE_SIGN_IN, [digest(secret)])
        self._known.pop(("sign-in", digest(secret)), None)
        self._callers_flight.forget()

    def forget(self) -> None:
        """Clear the cache, because a key was revoked here."""
        self._known.clear()
        self._callers_flight.forget()

    async def _caller(
        self,
        credential: _Credential,
        find: Callable[[bytes], Awaitable[Caller | None]],
        problem: str,
    ) -> Caller:
        until, caller = self._known.get(credential, (0.0, None))
        if time.monotonic() >= until:
            look_up = partial(self._look_up, credential, find)
            caller = await self._callers_flight.run(credential, look_up)
        if caller is None:
            raise NotIdentified(problem)
        return caller

    async def _look_up(
        self, credential: _Credential, find: Callable[[bytes], Awaitable[Caller | None]]
    ) -> Caller | None:
        self._known.pop(credential, None)
        while len(self._known) >= MAX_CACHED:
            del self._known[next(iter(self._known))]
        # An expired entry marks the lookup. If `sign_out` or `forget` removes it meanwhile, the
        # answer may be out of date and must not be cached.
        mark = self._known[credential] = (time.monotonic(), None)
        caller = await find(credential[1])
        if self._known.get(credential) is mark:
            self._known[credential] = (time.monotonic() + self._known_seconds, caller)
        return caller

    async def _find_whether_keys_are_needed(self) -> bool:
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                are_needed = await _has_keys(connection)
        self._keys_needed = (time.monotonic() + self._known_seconds, are_needed)
        return are_needed

    async def _find_by_key(self, key_digest: bytes) -> Caller | None:
        row = await self._find(_BY_KEY, [key_digest])
        if row is None:
            return None
        *columns, last_used_at = row
        caller = _caller_of(columns)
        now = self._clock()
        if last_used_at is None or now - last_used_at >= USED_AGAIN:
            await self._note_use(caller, now)
        return caller

    async def _find_by_sign_in(self, secret_digest: bytes) -> Caller | None:
        row = await self._find(_BY_SIGN_IN, [secret_digest, self._clock()])
        return None if row is None else _caller_of(row)

    async def _find(self, query: str, values: list[Any]) -> Any:
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                cursor = await connection.execute(query, values)
                return await cursor.fetchone()

    async def _note_use(self, caller: Caller, now: Any) -> None:
        values = [now, caller.key_id, now - USED_AGAIN]
        try:
            with store_errors():
                async with pooled_connection(self._pool) as connection:
                    await connection.execute(_NOTE_USE, values)
        except StoreUnavailable:  # for example a standby, which is read-only
            log.info("use_of_key_not_noted")


def _caller_of(row: Any) -> Caller:
    project_id, project, scopes, key_id, key_name = row
    return Caller(project_id, project, frozenset(Scope(each) for each in scopes), key_id, key_name)
