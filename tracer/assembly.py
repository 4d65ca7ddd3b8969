"""Create the components of a server or a command, and connect them, according to the settings.

Only this module imports all implementations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tracer.errors import ConfigurationError, NoApplication
from tracer.logs import get_logger
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import spool_for
from tracer.records.access import Caller, Scope
from tracer.records.ids import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.records.sessions import SessionStates
from tracer.runtime.application import Application, Surroundings
from tracer.runtime.from_settings import application_launcher, with_model_of
from tracer.runtime.launcher import RunLauncher, RunReader
from tracer.runtime.served_application import ServedApplication
from tracer.settings import Settings
from tracer.storage.embedded.postgres import (
    LOOK_SECONDS,
    restart_when_dead,
    start_embedded_postgres,
)
from tracer.storage.postgres.administration import migrate
from tracer.storage.postgres.connection.pool import Pool, open_pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.deletion.deletion import PostgresDeletion
from tracer.storage.postgres.jobs.backlog import Backlog
from tracer.storage.postgres.jobs.pruner import Pruner
from tracer.storage.postgres.jobs.reaper import Reaper
from tracer.storage.postgres.jobs.reprojector import Reprojector
from tracer.storage.postgres.jobs.span_packer import SpanPacker
from tracer.storage.postgres.project_stores import ProjectStores
from tracer.storage.postgres.projects.api_keys import ApiKeys, closed_by_first_key
from tracer.storage.postgres.projects.authentication import Authenticator
from tracer.storage.postgres.projects.projects import (
    SettingsOfProject,
    ensure_project,
    list_projects,
    project_id_of,
)
from tracer.storage.postgres.read.run_watch import RunWatch
from tracer.storage.postgres.session_state import PostgresSessions
from tracer.storage.postgres.spans.projectors import (
    ProjectionCounts,
    count_projectors,
    projectors,
)
from tracer.storage.postgres.spans.reprojection import Reprojection
from tracer.storage.postgres.stats.rollups import RollupJob
from tracer.storage.postgres.writer import OnCommit
from tracer.storage.write_redaction import WriteRedactor
from tracer.store import SpanProjection, TraceReader, TraceWriter

log = get_logger(__name__)


@dataclass(frozen=True)
class Parts:
    """The components of a server, or of a command that runs an application."""

    reader: TraceReader
    writer: TraceWriter
    application: ServedApplication | None
    """Runs the application; None if the server runs no application."""
    watch: RunWatch
    """Wakes the event streams of a run when the run may have changed."""
    project_id: int = DEFAULT_PROJECT_ID
    """The project that `reader` and `writer` serve, and in which the application records. Data that
    the application's tools store is not divided by project."""
    stores: ProjectStores | None = None
    """The stores of the other projects; None if the server has no other projects."""
    projection: SpanProjection | None = None
    """Reads wait for it until pending spans are projected; None: reads do not wait."""
    authenticator: Authenticator | None = None
    """Authenticates callers; None: every request may do everything."""
    recorder: Recorder | None = None
    """Records the work of the application's agents."""
    projections: ProjectionCounts | None = None
    """Counts the work of this server's projectors."""
    backlog: Backlog | None = None
    """Measures the accepted spans that are not projected yet. If there are too many, it rejects
    further spans."""

    async def opened_launcher(self) -> RunLauncher:
        """Wait until the application's resources are open, and return its launcher.

        Raises:
            NoApplication: The server runs no application.
            ApplicationUnavailable: The resources could not be opened.
        """
        if self.application is None:
            raise NoApplication
        return await self.application.opened()

    def end_watching(self) -> None:
        """End the event streams of all runs, because the server is about to stop."""
        self.watch.end()
        if self.stores is not None:
            self.stores.end()


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
            "Unset TRACER_URL. Only `tracer run`, `export`, `import` and `spool` work with a "
            "server alone."
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


@asynccontextmanager
async def parts(
    settings: Settings,
    database_url: str,
    application: Application | None,
    server_url: str | None = None,
    project: str = DEFAULT_PROJECT,
    on_commit: OnCommit = lambda _written, _seconds: None,
) -> AsyncIterator[Parts]:
    """Yield the components that serve a project and run an application.

    Args:
        settings: The settings. They contain the model for an application that does not choose one,
            and the directory of the recorder's spool.
        database_url: The URL of a Postgres whose schema is up to date.
        application: The application to run; None to run no application. Its resources open in the
            background.
        server_url: The server's own address; None if no server runs.
        project: The project to which the application's runs belong.
        on_commit: Called after each batch of writes.

    Raises:
        ConfigurationError: The project does not exist, or the application has no model.
    """
    terms, redaction = settings.lease_terms, settings.redaction
    async with (
        _server_pool(settings, database_url) as pool,
        ProjectStores(
            pool,
            terms,
            redaction=redaction,
            url=database_url,
            on_commit=on_commit,
        ) as stores,
    ):
        project_id = await project_id_of(pool, project)
        await stores.warn_without_row_security()
        authenticator = Authenticator(pool)
        tools = Caller(project_id, project, frozenset({Scope.READ}))
        surroundings = Surroundings(database_url, server_url, authenticator.own_key(tools))
        store = await stores.of(project_id)
        spool = spool_for(settings.home, database_url, project_id=project_id)
        recorder = Recorder(store.recorder_writer, spool, redaction=redaction)
        async with (
            projectors(database_url, settings.projectors, terms) as projections,
            Backlog(pool, settings.backlog_bytes) as backlog,
            Reaper(pool, terms, stores.notify.written),
            Pruner(pool, stores.notify.written),
            RollupJob(pool),
            SpanPacker(pool),
            Reprojector(pool),
            recorder,
            _served(
                settings,
                application,
                surroundings,
                recorder,
                store.reader,
                PostgresSessions(ProjectPool(pool, project_id), redactor=WriteRedactor(redaction)),
            ) as served_application,
        ):
            yield Parts(
                reader=store.reader,
                writer=store.writer,
                application=served_application,
                watch=store.watch,
                project_id=project_id,
                stores=stores,
                projection=store.projection,
                authenticator=authenticator,
                recorder=recorder,
                projections=projections,
                backlog=backlog,
            )


@asynccontextmanager
async def _served(
    settings: Settings,
    application: Application | None,
    surroundings: Surroundings,
    recorder: Recorder,
    reader: RunReader,
    sessions: SessionStates,
) -> AsyncIterator[ServedApplication | None]:
    """Choose the model of the application, and open its resources in the background."""
    if application is None:
        yield None
        return
    async with with_model_of(settings, application) as application:
        open_launcher = partial(
            application_launcher, application, surroundings, recorder, reader, sessions
        )
        refused_tools = application.registry.refused
        served_application = ServedApplication(refused_tools=refused_tools)
        async with served_application.opening(open_launcher) as served:
            yield served


def _server_pool(settings: Settings, database_url: str) -> Pool:
    """Return the connection pool of a server. Connections may use a pooler such as PgBouncer."""
    if settings.direct_database_url is None or settings.database_url is None:
        return open_pool(database_url)
    return open_pool(settings.database_url.get_secret_value(), has_sessions=False)


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
