"""The keys of a project: creation, listing and revocation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from psycopg.errors import CheckViolation

from tracer.clock import Clock, utc_now
from tracer.errors import BadRequest, RecordNotFound
from tracer.records.access import ApiKey, NewKey, Scope, digest, new_key
from tracer.records.ids import new_id
from tracer.redaction import standard_redaction
from tracer.storage.postgres.connection.pool import (
    Pool,
    PoolConnection,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.projects.projects import list_projects
from tracer.text import storable

FIRST_KEY = "first key"


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
            cursor = await connection.execute("SELECT FROM api_key LIMIT 1")
            if await cursor.fetchone() is not None:
                return None
    others = [each for each in (await list_projects(pool)).items() if each[0] != storable(project)]
    return [name for name, project_id in others if await _has_runs(ProjectPool(pool, project_id))]


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
            cursor = await connection.execute("SELECT FROM api_key LIMIT 1")
            if await cursor.fetchone() is not None:
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


_COLUMNS = """api_key.key_id, project.name, api_key.name, api_key.scopes, api_key.created_at,
    api_key.last_used_at, api_key.revoked_at"""

_LIST = f"""
SELECT {_COLUMNS} FROM api_key JOIN project USING (project_id)
WHERE project_id = %s ORDER BY api_key.created_at, api_key.key_id"""

_HAS_RUNS = "SELECT EXISTS (SELECT FROM run WHERE project_id = %s AND deleted_at IS NULL)"

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
