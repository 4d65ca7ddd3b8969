"""The stores of the projects, each created when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from tracer.clock import Clock, utc_now
from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.logs import get_logger
from tracer.records import DEFAULT_PROJECT_ID, DEFAULT_TERMS, LeaseTerms
from tracer.records.access import NewKey
from tracer.records.sessions import (
    MAX_SESSION_RUNS,
    State,
    StateChange,
    apply,
    state_from,
    state_text,
    stored_session_id,
)
from tracer.redaction import Redaction, standard_redaction
from tracer.search import SearchIndex
from tracer.storage.postgres.keys import ApiKeys, closed_by_first_key, make_first_key
from tracer.storage.postgres.leases import LeaseCounts, count_leases
from tracer.storage.postgres.pool import Pool, store_errors
from tracer.storage.postgres.projection import PostgresProjection, Reprojection
from tracer.storage.postgres.projects import ModelPrices, SettingsOfProject
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import HOW_TO_CORRECT, ProjectPool, in_project
from tracer.storage.postgres.watch import Notify, RunWatch, notifications
from tracer.storage.postgres.writer import OnCommit, WriterOptions, postgres_writer
from tracer.store import SpanProjection, TraceReader, TraceWriter

# --- Session states in Postgres: one row each, which is locked while it is changed.


_THE_SESSION = "session_id = %(session)s AND project_id = %(project_id)s"

_READ = f"SELECT state::text FROM session_state WHERE {_THE_SESSION}"

# One statement, so that a session without a row can be locked, too. If a change is rejected, the
# transaction rolls back what this statement wrote.
_CREATE_OR_LOCK = """
INSERT INTO session_state AS stored (project_id, session_id, state, revision, updated_at)
VALUES (%(project_id)s, %(session)s, %(state)s, 1, %(now)s)
ON CONFLICT (session_id, project_id)
    DO UPDATE SET revision = stored.revision + 1, updated_at = excluded.updated_at
RETURNING state::text"""

# The slice selects the newest of the earlier runs; a slice that begins below 1 selects all.
_ADD_RUN = """
INSERT INTO session_state AS stored (project_id, session_id, state, revision, updated_at, run_ids)
VALUES (%(project_id)s, %(session)s, %(state)s, 0, %(now)s, ARRAY[%(run)s::uuid])
ON CONFLICT (session_id, project_id) DO UPDATE SET
    run_ids = stored.run_ids[cardinality(stored.run_ids) - %(earlier)s + 1 :] || excluded.run_ids,
    updated_at = excluded.updated_at
RETURNING run_ids"""

_STORE = f"UPDATE session_state SET state = %(state)s WHERE {_THE_SESSION}"


class PostgresSessions:
    """`tracer.records.sessions.SessionStates` over a project's connections."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock = utc_now,
        redaction: Redaction | None = None,
    ) -> None:
        self._project = project
        self._clock = clock
        self._redaction = redaction or standard_redaction()

    async def read_state(self, session_id: str, initial: Mapping[str, Any]) -> State:
        """Return a session's state."""
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_READ, self._values(session_id))
                row = await cursor.fetchone()
        return state_from(state_text(initial) if row is None else row[0])

    async def change_state(
        self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
    ) -> State:
        """Apply changes to a session's state."""
        first = self._redaction.text(state_text(initial))
        values = self._values(session_id) | {"state": first, "now": self._clock()}
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_CREATE_OR_LOCK, values)
                [(text,)] = await cursor.fetchall()
                state = apply(state_from(text), changes)
                state_json = self._redaction.text(state_text(state))
                await connection.execute(_STORE, values | {"state": state_json})
        return state_from(state_json)

    async def add_run(
        self, session_id: str, initial: Mapping[str, Any], root_plan_id: UUID
    ) -> list[UUID]:
        """Append a run to a session."""
        values = self._values(session_id) | {
            "state": self._redaction.text(state_text(initial)),
            "now": self._clock(),
            "run": root_plan_id,
            "earlier": MAX_SESSION_RUNS - 1,
        }
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_ADD_RUN, values)
                [(runs,)] = await cursor.fetchall()
        return list(runs[:-1])

    def _values(self, session_id: str) -> dict[str, Any]:
        # Only the session id in the key is masked. If the digest of the caller were masked too,
        # different callers with secret session ids would share a conversation.
        session, at, caller = stored_session_id(session_id).rpartition("@")
        masked = self._redaction.value(session or caller) + at + caller * bool(at)
        return {"project_id": self._project.project_id, "session": masked}


# --- The stores of the projects, each created when it is first needed.
#
# They are never removed, because the number of projects is small: HTTP clients cannot create any.

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
        search: SearchIndex | None = None,
    ) -> None:
        """Create the stores on a pool that all projects share.

        Args:
            pool: The database.
            terms: The lengths of leases.
            project_pool: Creates a project's view of the pool.
            redaction: Masks secrets; None: with the standard rules.
            url: The same database, for notifications between processes; None: no notifications.
            on_commit: Called after each batch of writes.
            search: The index that answers searches; None: they are rejected.
        """
        self._pool = pool
        self.search = search or SearchIndex(None)
        self._terms = terms
        self._redaction = redaction
        self._project_pool = project_pool
        self._stores: dict[int, ProjectStore] = {}
        self._opening = asyncio.Lock()
        self._entered = AsyncExitStack()
        self._is_watched = asyncio.Event()
        self._url = url
        self._on_commit = on_commit
        self.notify = Notify(written=self.wake)
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
        reader = PostgresReader(project, self.search)
        watch = RunWatch(reader, on_watched=self._is_watched.set)
        await self._entered.enter_async_context(watch)
        settings, prices = SettingsOfProject(project), ModelPrices(project)
        options = WriterOptions(
            terms=self._terms,
            notify=self.notify,
            on_commit=self._on_commit,
            redaction=self._redaction,
            settings=settings,
            prices=prices,
            settle=Reprojection(project).settle,
        )
        writer = postgres_writer(project, options)
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
