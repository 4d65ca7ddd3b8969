"""Open the database of a command, and the parts of it that commands administer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tracer.errors import ConfigurationError
from tracer.search import ProjectState
from tracer.settings import Settings
from tracer.storage.embedded import LOOK_SECONDS, restart_when_dead, start_embedded_postgres
from tracer.storage.postgres import Pool, ProjectPool, migrate, open_pool
from tracer.storage.postgres.deletion import PostgresDeletion
from tracer.storage.postgres.keys import ApiKeys, closed_by_first_key
from tracer.storage.postgres.processes import projectors
from tracer.storage.postgres.projection import Reprojection, count_projectors
from tracer.storage.postgres.projects import (
    SettingsOfProject,
    ensure_project,
    list_projects,
    project_id_of,
)
from tracer.storage.postgres.search_source import search_index


@asynccontextmanager
async def database(
    settings: Settings, migrated: bool = True, look_seconds: float = LOOK_SECONDS
) -> AsyncIterator[str]:
    """Yield the URL of the database. If none is configured, start the embedded Postgres.

    Args:
        settings: The settings, including the URL of the database.
        migrated: Whether to migrate the schema to the latest version first.
        look_seconds: The seconds between two checks that the embedded Postgres is alive.

    Raises:
        ConfigurationError: `TRACER_URL` is set, so records are sent to a server instead.
        StoreUnavailable: The database does not answer, or the embedded Postgres does not start.
    """
    if settings.url is not None:
        raise ConfigurationError(
            "This command needs a database, but TRACER_URL is set and names a server. "
            "Unset TRACER_URL for it: `env -u TRACER_URL tracer …`."
        )
    async with AsyncExitStack() as stack:
        # Work other than a server's requests bypasses the pooler, because it may need a session.
        if (secret := settings.direct_database_url or settings.database_url) is not None:
            url = secret.get_secret_value()
        else:
            embedded = await asyncio.to_thread(start_embedded_postgres, settings.home)
            stack.push_async_callback(asyncio.to_thread, embedded.stop)
            await stack.enter_async_context(restart_when_dead(embedded, look_seconds))
            url = embedded.url
        if migrated:
            await asyncio.to_thread(migrate.upgrade, url)
        yield url


class KeyRing:
    """Access to the API keys of all projects."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def made(self, project: str) -> ApiKeys:
        """Return the API keys of a project. If the project does not exist, create it."""
        return self._keys(await ensure_project(self._pool, project))

    async def all(self) -> list[ApiKeys]:
        """Return the API keys of all projects, oldest project first."""
        return [self._keys(each) for each in (await list_projects(self._pool)).values()]

    async def closed_by_first_key(self, project: str) -> list[str] | None:
        """Return the projects that become inaccessible when `project` gets the server's first key.

        A server without keys serves everyone. As soon as one key exists, each project requires a
        key of its own. The result contains only projects with runs. It is None if the server has,
        or ever had, a key.
        """
        return await closed_by_first_key(self._pool, project)

    def _keys(self, project_id: int) -> ApiKeys:
        return ApiKeys(ProjectPool(self._pool, project_id))


@asynccontextmanager
async def key_ring(database_url: str) -> AsyncIterator[KeyRing]:
    """Yield access to the API keys of all projects. The database must be migrated."""
    async with open_pool(database_url) as pool:
        yield KeyRing(pool)


@asynccontextmanager
async def project_settings(
    database_url: str, project: str | None = None
) -> AsyncIterator[dict[str, SettingsOfProject]]:
    """Yield access to the settings of projects, by project name. The database must be migrated.

    Args:
        database_url: The URL of the database.
        project: The name of one project; None for all projects.

    Raises:
        ConfigurationError: The project does not exist.
    """
    async with open_pool(database_url) as pool:
        pools = await _chosen(pool, project)
        yield {name: SettingsOfProject(each) for name, each in pools.items()}


async def search_states(settings: Settings, database_url: str) -> dict[str, ProjectState]:
    """Return how far the search index of this machine is, by project name: those that it has."""
    async with open_pool(database_url) as pool:
        directory = (await search_index(pool, settings.search_directory)).directory
        state = directory and directory.state()
        project_ids = await list_projects(pool)
    indexed = state.projects if state else {}
    return {name: indexed[each] for name, each in project_ids.items() if each in indexed}


async def _chosen(pool: Pool, project: str | None) -> dict[str, ProjectPool]:
    """Return the connections of one project, or of all projects if `project` is None, by name.

    Raises:
        ConfigurationError: The project does not exist.
    """
    if project is None:
        project_ids = await list_projects(pool)
    else:
        project_ids = {project: await project_id_of(pool, project)}
    return {name: ProjectPool(pool, project_id) for name, project_id in project_ids.items()}


@asynccontextmanager
async def reprojection(database_url: str, project: str) -> AsyncIterator[Reprojection]:
    """Yield an object that recomputes the records of stored runs. The database must be migrated.

    Raises:
        ConfigurationError: The project does not exist.
    """
    async with project_pool(database_url, project) as pool, projecting(database_url):
        yield Reprojection(pool)


@asynccontextmanager
async def projecting(database_url: str) -> AsyncIterator[None]:
    """Run a projector during the block if none is connected to the database."""
    async with open_pool(database_url) as pool:
        number = 0 if await count_projectors(pool) else 1
    async with projectors(database_url, number):
        yield


@asynccontextmanager
async def project_pool(database_url: str, project: str) -> AsyncIterator[ProjectPool]:
    """Yield database connections for a project. The database must be migrated.

    Raises:
        ConfigurationError: The project does not exist.
    """
    async with open_pool(database_url) as pool:
        yield ProjectPool(pool, await project_id_of(pool, project))


@asynccontextmanager
async def deletion(database_url: str, project: str) -> AsyncIterator[PostgresDeletion]:
    """Yield an object that deletes runs of a project. The database must be migrated.

    Raises:
        ConfigurationError: The project does not exist.
    """
    async with project_pool(database_url, project) as pool:
        yield PostgresDeletion(pool)
