"""Projects: their names, and what they keep.

Only who has the database makes one: no key is above projects.
"""

from __future__ import annotations

import time
from dataclasses import astuple, replace
from typing import TypedDict, Unpack

from psycopg.errors import CheckViolation, NumericValueOutOfRange

from tracer.clock import utc_now
from tracer.errors import BadRequest, ConfigurationError
from tracer.records.ids import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.records.project_settings import KeptSpans, ProjectSettings
from tracer.redaction.payloads import PayloadPolicy
from tracer.storage.postgres.connection.pool import Pool, PoolConnection, borrowed, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.projects.single_flight import AskedTogether
from tracer.text import storable

KNOWN_SECONDS = 2.0
"""How long a server goes by what it knows of a project's settings."""


async def project_id_of(pool: Pool, name: str) -> int:
    """Return the id of a project. That of the default one is known while the database is away.

    Raises:
        ConfigurationError: There is no project of that name.
        StoreUnavailable: The database does not answer.
    """
    if name == DEFAULT_PROJECT:
        return DEFAULT_PROJECT_ID
    projects = await list_projects(pool)
    if name not in projects:
        raise ConfigurationError(
            f"There is no project {name!r}. There are {', '.join(projects)}; "
            "`tracer keys create --project NAME` makes one."
        )
    return projects[name]


async def project_made(pool: Pool, name: str) -> int:
    """Return the id of a project, which is made where there is none of that name.

    Raises:
        BadRequest: The name is empty or longer than 100 characters.
        StoreUnavailable: The database does not answer.
    """
    try:
        with store_errors():
            async with borrowed(pool) as connection, connection.transaction():
                await connection.execute("LOCK TABLE project IN SHARE ROW EXCLUSIVE MODE")
                await connection.execute(_MAKE, {"name": storable(name), "now": utc_now()})
    except CheckViolation:
        raise BadRequest("A project's name has 1 to 100 characters.") from None
    return (await list_projects(pool))[storable(name)]


async def list_projects(pool: Pool) -> dict[str, int]:
    """Return the ids of all projects by their names, oldest first."""
    with store_errors():
        async with borrowed(pool) as connection:
            cursor = await connection.execute(
                "SELECT name, project_id FROM project ORDER BY project_id"
            )
            return {name: project_id async for name, project_id in cursor}


class Changes(TypedDict, total=False):
    """What is to be changed of a project's settings; what is missing stays."""

    keep_days: int | None
    keep_runs: int | None
    payloads: PayloadPolicy
    keep_spans: KeptSpans


class SettingsOfProject:
    """What one project keeps: read, changed, and known for a moment."""

    def __init__(self, project: ProjectPool, known_seconds: float = KNOWN_SECONDS) -> None:
        self._project = project
        self._known_seconds = known_seconds
        self._known: tuple[float, ProjectSettings] = (0.0, ProjectSettings())
        self._asked = AskedTogether[ProjectSettings]()

    async def known(self) -> ProjectSettings:
        """Return the settings, as they were two seconds ago at most: for what is done often.

        Who asks while they are read gets what is read, whatever becomes of who asked first.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        until, known = self._known
        if time.monotonic() < until:
            return known
        return await self._asked.answer("settings", self.read)

    async def read(self) -> ProjectSettings:
        """Return the settings as they are.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with in_project(self._project) as connection:
                settings = await self._read(connection)
        return self._remembered(settings)

    async def change(self, **changes: Unpack[Changes]) -> ProjectSettings:
        """Change some of the settings, and return all. Other servers know within two seconds.

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
                    given = [*astuple(settings), self._project.project_id]
                    await connection.execute(_CHANGE, given)
        except (CheckViolation, NumericValueOutOfRange):
            raise BadRequest(
                "Days to keep are 1 to 36,500, and runs to keep 1 and more; none: for ever."
            ) from None
        return self._remembered(settings)

    async def _read(self, connection: PoolConnection, locking: str = "") -> ProjectSettings:
        cursor = await connection.execute(_SETTINGS + locking, [self._project.project_id])
        row = await cursor.fetchone()
        if row is None:
            return ProjectSettings()
        keep_days, keep_runs, payloads, keep_spans = row
        return ProjectSettings(keep_days, keep_runs, PayloadPolicy(payloads), KeptSpans(keep_spans))

    def _remembered(self, settings: ProjectSettings) -> ProjectSettings:
        self._known = (time.monotonic() + self._known_seconds, settings)
        return settings


_MAKE = """
INSERT INTO project (project_id, name, created_at)
SELECT max(project_id) + 1, %(name)s, %(now)s FROM project
ON CONFLICT ON CONSTRAINT project_has_its_own_name DO NOTHING"""

_SETTINGS = "SELECT keep_days, keep_runs, payloads, keep_spans FROM project WHERE project_id = %s"

_CHANGE = """
UPDATE project SET (keep_days, keep_runs, payloads, keep_spans) = (%s, %s, %s, %s)
WHERE project_id = %s"""
