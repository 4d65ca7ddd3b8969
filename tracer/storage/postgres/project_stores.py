"""The stores of the projects, each created when it is first needed.

They are never removed, because the number of projects is small: HTTP clients cannot create any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.logs import get_logger
from tracer.records.access import NewKey
from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.leases import DEFAULT_TERMS, LeaseTerms
from tracer.redaction import Redaction
from tracer.storage.postgres.connection.notifications import Notify, notifications
from tracer.storage.postgres.connection.pool import Pool, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.connection.row_security import HOW_TO_CORRECT
from tracer.storage.postgres.projects.api_keys import ApiKeys, closed_by_first_key, make_first_key
from tracer.storage.postgres.projects.model_prices import ModelPrices
from tracer.storage.postgres.projects.projects import SettingsOfProject
from tracer.storage.postgres.read.run_watch import RunWatch
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.spans.catch_up import PostgresProjection
from tracer.storage.postgres.spans.reprojection import Reprojection
from tracer.storage.postgres.write.leases import LeaseCounts, count_leases
from tracer.storage.postgres.writer import OnCommit, PostgresWriter
from tracer.storage.write_redaction import WriteRedactor
from tracer.store import SpanProjection, TraceReader, TraceWriter

log = get_logger(__name__)


@dataclass(frozen=True)
class ProjectStore:
    """The store of one project, and its administration."""

    reader: TraceReader
    writer: TraceWriter
    recorder_writer: TraceWriter
    """For a recorder of this process; see `PostgresWriter.for_recorder`."""
    watch: RunWatch
    keys: ApiKeys
    settings: SettingsOfProject
    prices: ModelPrices
    projection: SpanProjection | None = None
    """Reads wait for it until pending spans are projected. None: reads do not wait."""


class ProjectStores:
    """Provides the store of each project. Use it as an async context manager."""

    def __init__(
        self,
        pool: Pool,
        terms: LeaseTerms = DEFAULT_TERMS,
        project_pool: Callable[[Pool, int], ProjectPool] = ProjectPool,
        redaction: Redaction | None = None,
        url: str | None = None,
        on_commit: OnCommit = lambda _written, _seconds: None,
    ) -> None:
        """Create the stores on a pool that all projects share.

        Args:
            pool: The database.
            terms: The lengths of leases.
            project_pool: Creates a project's view of the pool.
            redaction: Masks secrets; None: with the standard rules.
            url: The same database, for notifications between processes; None: no notifications.
            on_commit: Called after each batch of writes.
        """
        self._pool = pool
        self._terms = terms
        self._redaction = redaction
        self._project_pool = project_pool
        self._stores: dict[int, ProjectStore] = {}
        self._opening = asyncio.Lock()
        self._entered = AsyncExitStack()
        self._is_watched = asyncio.Event()
        self._url = url
        self._on_commit = on_commit
        self.notify = Notify(written=self.wake, accepted=lambda _: None)
        """Callbacks for the runs of all projects. They notify other processes if the context
        manager was entered with a `url`."""

    async def __aenter__(self) -> Self:
        if self._url is not None:
            notifying = notifications(self._pool, self._url, self)
            self.notify = await self._entered.enter_async_context(notifying)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._entered.aclose()

    async def of(self, project_id: int) -> ProjectStore:
        """Return a project's store."""
        if project_id not in self._stores:
            async with self._opening:
                if project_id not in self._stores:
                    self._stores[project_id] = await self._open(project_id)
        return self._stores[project_id]

    async def is_walled(self) -> bool:
        """Return whether row-level security is effective, in addition to the queries' conditions.

        Raises:
            StoreUnavailable: The database does not answer.
            SchemaOutOfDate: It lacks migrations.
        """
        project = self._project_pool(self._pool, DEFAULT_PROJECT_ID)
        with store_errors():
            async with in_project(project) as connection:
                cursor = await connection.execute("SELECT row_security_active('run')")
                return await cursor.fetchone() == (True,)

    async def warn_without_row_security(self) -> None:
        """Log a warning if row-level security is not effective."""
        try:
            is_walled = await self.is_walled()
        except (StoreUnavailable, SchemaOutOfDate):
            return  # `/readyz` reports it
        if not is_walled:
            log.warning("row_level_security_off", detail=HOW_TO_CORRECT)

    async def closed_by_first_key(self, project: str) -> list[str] | None:
        """Return the projects that become inaccessible when `project` gets the server's first key.

        Only projects with runs are returned. Return None if the server has, or ever had, a key.
        """
        return await closed_by_first_key(self._pool, project)

    async def make_first_key(self, project_id: int) -> NewKey | None:
        """Create a key with all scopes for a project; None if there ever was a key."""
        return await make_first_key(self._pool, project_id)

    def pool_stats(self) -> Mapping[str, int]:
        """Return the statistics of the connection pool."""
        return self._pool.get_stats()

    async def count_leases(self) -> LeaseCounts:
        """Count the leases of all projects.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            return await count_leases(self._pool)

    def wake(self, root_plan_ids: Collection[UUID]) -> None:
        """Wake the watchers of some runs, in all projects: projects may share run ids."""
        for store in self._stores.values():
            store.watch.wake(root_plan_ids)

    async def until_watched(self) -> None:
        """Wait until a run is watched."""
        await self._is_watched.wait()

    def end(self) -> None:
        """End the event streams of all runs, because the server shuts down."""
        for store in self._stores.values():
            store.watch.end()

    async def _open(self, project_id: int) -> ProjectStore:
        project = self._project_pool(self._pool, project_id)
        reader = PostgresReader(project)
        watch = RunWatch(reader, on_watched=self._is_watched.set)
        await self._entered.enter_async_context(watch)
        settings, prices = SettingsOfProject(project), ModelPrices(project)
        writer = PostgresWriter(
            project,
            on_written=self.notify.written,
            on_accepted=self.notify.accepted,
            terms=self._terms,
            on_commit=self._on_commit,
            redactor=WriteRedactor(self._redaction),
            settings=settings,
            prices=prices,
            settle=Reprojection(project).settle,
        )
        return ProjectStore(
            reader,
            writer,
            writer.for_recorder(),
            watch,
            ApiKeys(project),
            settings,
            prices,
            PostgresProjection(project),
        )
