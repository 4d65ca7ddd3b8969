"""Projecting stored spans in tests, without waiting until they are due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import count, islice
from threading import Event
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

from psycopg.errors import ReadOnlySqlTransaction

from tracer.records import DEFAULT_PROJECT_ID, Kind
from tracer.storage.postgres import (
    Pool,
    ProjectPool,
    connection_options,
    rollups,
    sync_connection,
)
from tracer.storage.postgres.linker import Linker
from tracer.storage.postgres.projection import PostgresProjection
from tracer.storage.postgres.projector import Projector, Round
from tracer.store import Behind, SpanProjection

T = TypeVar("T")

_days = count()
_MOST_ROUNDS = 6_000


class Projection(SpanProjection, Protocol):
    """A projector in this process."""

    async def project_due(self, now: datetime | None = None) -> int:
        """Project the runs of all projects that are due, and return how many."""

    async def link(self) -> None:
        """Derive the links between the runs of all projects."""


async def project(projection: Projection) -> int:
    """Project all pending runs, and return how many there were."""
    # A day later each time: a run is not due again soon after a projection.
    now = datetime(2100, 1, 1, tzinfo=UTC) + timedelta(days=next(_days))
    return await projection.project_due(now)


def projecting_after(inner: T, projection: Projection, names: frozenset[str]) -> T:
    """Return a store that projects all pending runs after each call of the methods `names`."""

    async def after(call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        await project(projection)
        return answer

    return _wrapped(inner, names.__contains__, after)


def projecting_before(inner: T, projection: Projection) -> T:
    """Return a reader that projects all pending runs before each read."""

    async def before(call: Callable[[], Awaitable[Any]]) -> Any:
        await project(projection)
        return await call()

    return _wrapped(inner, lambda _: True, before)


def _wrapped(
    inner: T,
    is_chosen: Callable[[str], bool],
    around: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
) -> T:
    class Wrapped:
        def __getattr__(self, name: str) -> Any:
            method = getattr(inner, name)
            if not is_chosen(name):
                return method

            @wraps(method)
            async def call(*arguments: Any, **options: Any) -> Any:
                return await around(lambda: method(*arguments, **options))

            return call

    return cast("T", Wrapped())


@asynccontextmanager
async def projecting(database_url: str, project_id: int) -> AsyncIterator[None]:
    """Project the pending runs of one project during the block, due or not, and link all runs."""
    end = Event()

    def keep_projecting() -> None:
        with sync_connection(connection_options(database_url)) as connection:
            projector, linker = Projector(connection), Linker(connection)
            while not end.wait(0.05):
                linker.visit_due()
                for (run_id,) in connection.execute(_PENDING, [project_id]).fetchall():
                    projector.project_run(project_id, run_id)

    work = asyncio.create_task(asyncio.to_thread(keep_projecting))
    try:
        yield
    finally:
        end.set()
        await work


_PENDING = "SELECT root_plan_id FROM pending_run WHERE project_id = %s AND spans > 0"


async def project_in(pool: Pool) -> None:
    """Project all pending runs of the database of a pool."""
    await project(DatabaseProjection(pool.kwargs))


async def roll_up(
    pool: Pool,
    project_id: int = DEFAULT_PROJECT_ID,
    *,
    batches: int | None = None,
    runs_at_once: int = 500,
) -> int:
    """Roll up the changed runs of a project, and return the number of computed hours.

    Args:
        pool: A pool of the database.
        project_id: The project.
        batches: After how many batches to stop; None: after the last one.
        runs_at_once: The most runs of a batch.
    """

    def roll_up() -> int:
        with sync_connection(pool.options) as connection:
            passing = rollups.roll_up(connection, project_id, runs_at_once)
            return sum(islice(passing, batches))

    return await asyncio.to_thread(roll_up)


class DatabaseProjection:
    """`Projection` over a database, by a projector of its own for each call."""

    def __init__(self, options: Any) -> None:
        """Take the options of connections: `connection_options(url)`, or `pool.kwargs`."""
        self._options = options

    async def project_due(self, now: datetime | None = None) -> int:
        return await asyncio.to_thread(self._project_due, now)

    def _project_due(self, now: datetime | None) -> int:
        with sync_connection(self._options) as connection:
            projector, done = Projector(connection), Round()
            for _ in range(_MOST_ROUNDS):
                done += projector.project_due(now)
                if not projector.find_due(now):
                    return done.projected
                time.sleep(0.01)  # another projector works on a run
        raise AssertionError("Runs that are due were not projected.")

    async def link(self) -> None:
        await asyncio.to_thread(self._link)

    def _link(self) -> None:
        with sync_connection(self._options) as connection:
            linker = Linker(connection)
            for _ in range(_MOST_ROUNDS):
                if not linker.visit_due():
                    return
        raise AssertionError("The visits of the linker do not end.")

    async def catch_up(self, kind: Kind, record_id: UUID, *, seconds: float = 2.0) -> Behind | None:
        await project(self)
        return None


class WokenProjection(DatabaseProjection):
    """`PostgresProjection`, with a projector in this process that each read wakes."""

    def __init__(self, options: Any, project_pool: ProjectPool) -> None:
        super().__init__(options)
        self._inner = PostgresProjection(project_pool)

    async def catch_up(self, kind: Kind, record_id: UUID, *, seconds: float = 2.0) -> Behind | None:
        if await self._inner.catch_up(kind, record_id, seconds=0) is None:
            return None
        with suppress(ReadOnlySqlTransaction):  # a projector fails in its own process
            await self.project_due()
        return await self._inner.catch_up(kind, record_id, seconds=0)
