"""Projects: their names and settings.

Creating a project needs access to the database: no key allows it.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Unpack

from psycopg.errors import CheckViolation, NumericValueOutOfRange

from tracer.clock import utc_now
from tracer.errors import BadRequest, ConfigurationError
from tracer.records.ids import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.records.payloads import PayloadPolicy
from tracer.records.project_settings import ProjectSettings, SettingsChange
from tracer.storage.postgres.connection.pool import (
    Pool,
    PoolConnection,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.projects.cached import CACHE_SECONDS, Cached
from tracer.text import storable


async def project_id_of(pool: Pool, name: str) -> int:
    """Return the id of a project. The id of the default project is constant and needs no query.

    Raises:
        ConfigurationError: There is no project of that name.
        StoreUnavailable: The database does not answer.
    """
    if name == DEFAULT_PROJECT:
        return DEFAULT_PROJECT_ID
    projects = await list_projects(pool)
    if name not in projects:
        raise ConfigurationError(
            f"There is no project {name!r}. Choose one of {', '.join(projects)}, or create it with "
            f"`tracer keys create --project NAME`."
        )
    return projects[name]


async def ensure_project(pool: Pool, name: str) -> int:
    """Return the id of a project. Create it if there is none of this name.

    Raises:
        BadRequest: The name is empty or longer than 100 characters.
        StoreUnavailable: The database does not answer.
    """
    try:
        with store_errors():
            async with pooled_connection(pool) as connection, connection.transaction():
                await connection.execute("LOCK TABLE project IN SHARE ROW EXCLUSIVE MODE")
                await connection.execute(_MAKE, {"name": storable(name), "now": utc_now()})
    except CheckViolation:
        raise BadRequest("The name of a project must have 1 to 100 characters.") from None
    return (await list_projects(pool))[storable(name)]


async def list_projects(pool: Pool) -> dict[str, int]:
    """Return the ids of all projects by their names, oldest first."""
    with store_errors():
        async with pooled_connection(pool) as connection:
            cursor = await connection.execute(
                "SELECT name, project_id FROM project ORDER BY project_id"
            )
            return {name: project_id async for name, project_id in cursor}


class SettingsOfProject:
    """The settings of one project, with a short-lived cache."""

    def __init__(self, project: ProjectPool, known_seconds: float = CACHE_SECONDS) -> None:
        self._project = project
        self._cached = Cached(self._read_stored, known_seconds)

    async def known(self) -> ProjectSettings:
        """Return the settings from a cache. They may be two seconds old.

        Concurrent callers share one query. A cancelled caller does not affect the others.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await self._cached.get()

    async def read(self) -> ProjectSettings:
        """Return the current settings.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return self._cached.set(await self._read_stored())

    async def change(self, **changes: Unpack[SettingsChange]) -> ProjectSettings:
        """Change some settings, and return all. Other servers see the change within two seconds.

        Raises:
            BadRequest: A number is not positive, or too large.
            StoreUnavailable: The database does not answer.
        """
        try:
            with store_errors():
                async with in_project(self._project) as connection:
                    settings = replace(
                        await self._read(connection, " FOR NO KEY UPDATE"), **changes
                    )
                    parameters = [*astuple(settings), self._project.project_id]
                    await connection.execute(_CHANGE, parameters)
        except (CheckViolation, NumericValueOutOfRange):
            raise BadRequest(
                "keepDays must be from 1 to 36,500, and keepRuns at least 1. Leave them empty to "
                "keep runs for ever."
            ) from None
        return self._cached.set(settings)

    async def _read_stored(self) -> ProjectSettings:
        with store_errors():
            async with in_project(self._project) as connection:
                return await self._read(connection)

    async def _read(self, connection: PoolConnection, locking: str = "") -> ProjectSettings:
        cursor = await connection.execute(_SETTINGS + locking, [self._project.project_id])
        row = await cursor.fetchone()
        if row is None:
            return ProjectSettings()
        keep_days, keep_runs, payloads = row
        return ProjectSettings(keep_days, keep_runs, PayloadPolicy(payloads))


_MAKE = """
INSERT INTO project (project_id, name, created_at)
SELECT max(project_id) + 1, %(name)s, %(now)s FROM project
ON CONFLICT ON CONSTRAINT project_has_its_own_name DO NOTHING"""

_SETTINGS = "SELECT keep_days, keep_runs, payloads FROM project WHERE project_id = %s"

_CHANGE = """
UPDATE project SET (keep_days, keep_runs, payloads) = (%s, %s, %s)
WHERE project_id = %s"""
