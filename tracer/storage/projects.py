"""Projects, by their names. Only who has the database makes one: no key is above projects."""

from __future__ import annotations

from psycopg.errors import CheckViolation

from tracer.clock import Clock, utc_now
from tracer.errors import BadRequest, ConfigurationError
from tracer.ids import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.storage.engine import Pool, borrowed, store_errors
from tracer.text import storable


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


async def project_made(pool: Pool, name: str, clock: Clock = utc_now) -> int:
    """Return the id of a project, which is made where there is none of that name.

    Raises:
        BadRequest: The name is empty or longer than 100 characters.
        StoreUnavailable: The database does not answer.
    """
    try:
        with store_errors():
            async with borrowed(pool) as connection, connection.transaction():
                await connection.execute("LOCK TABLE project IN SHARE ROW EXCLUSIVE MODE")
                await connection.execute(_MAKE, {"name": storable(name), "now": clock()})
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


_MAKE = """
INSERT INTO project (project_id, name, created_at)
SELECT max(project_id) + 1, %(name)s, %(now)s FROM project
ON CONFLICT ON CONSTRAINT project_has_its_own_name DO NOTHING"""
