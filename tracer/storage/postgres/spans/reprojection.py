"""Projecting runs again, and waiting until runs are projected.

Runs are made pending, so that projectors project them. If no projector does, this process projects
them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tracer.otel.projection.project import PROJECTION_VERSION
from tracer.storage.postgres.connection.citus import is_spread, runs_per_transaction
from tracer.storage.postgres.connection.notifications import WAKE_PROJECTORS
from tracer.storage.postgres.connection.pool import (
    PoolConnection,
    connection_options,
    store_errors,
    sync_connection,
)
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project, reading
from tracer.storage.postgres.spans.projector import Projector

RUNS_AT_ONCE = 200
"""How many runs are made pending together. If it were all runs of a project, new spans would have
to wait for them."""

IDLE_SECONDS = 3.0
"""If no projector has begun or finished any of the runs for this long, this process projects
them."""

GIVE_UP_SECONDS = 120.0
"""Waiting ends after this time without progress. It exceeds the 60 s after which a projector is
killed."""

POLL_SECONDS = 0.2

FIRST_ID = UUID(int=0)

_OF_RUNS = "project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)"

_IS_PROJECTABLE = "deleted_at IS NULL AND source = 'spans' AND projection_version <= %(version)s"

_LOCK = f"""
SELECT root_plan_id FROM run WHERE {_OF_RUNS} AND {_IS_PROJECTABLE}
ORDER BY root_plan_id FOR NO KEY UPDATE"""

# `seen_at` is null, because this is not a heartbeat of the run.
_MAKE_PENDING = f"""
INSERT INTO pending_run AS stored (project_id, root_plan_id, arrived, spans, size, since, due_at,
    with_prices)
SELECT project_id, root_plan_id, projected + 1, 0, 0, statement_timestamp(), statement_timestamp(),
    %(with_prices)s
FROM run WHERE {_OF_RUNS} ORDER BY root_plan_id
ON CONFLICT (root_plan_id, project_id) DO UPDATE
SET arrived = stored.arrived + 1, due_at = excluded.due_at, attempts = 0, failure = NULL,
    with_prices = stored.with_prices OR excluded.with_prices
RETURNING root_plan_id, arrived"""

_CLEAR_ERRORS = f"""
UPDATE run SET projection_error = NULL, revision = revision + 1
WHERE {_OF_RUNS} AND projection_error IS NOT NULL"""

_COUNT = f"SELECT count(*) FROM run WHERE project_id = %(project_id)s AND {_IS_PROJECTABLE}"

_NEXT = f"""
SELECT root_plan_id FROM run
WHERE project_id = %(project_id)s AND root_plan_id > %(after)s AND {_IS_PROJECTABLE}
ORDER BY root_plan_id LIMIT %(most)s"""

_STATES = f"""
SELECT root_plan_id, projected, coalesce(due_at = 'infinity', false), coalesce(attempts, 0)
FROM run LEFT JOIN pending_run USING (project_id, root_plan_id)
WHERE {_OF_RUNS} AND deleted_at IS NULL"""

_PENDING = """
SELECT root_plan_id, arrived FROM pending_run
WHERE project_id = %(project_id)s AND since <= statement_timestamp()"""


ProjectHere = Callable[[int, UUID, int], Awaitable[bool]]
"""Projects a run in this process, and returns whether it did. Takes the project, the run and the
number of attempts that were made."""


@dataclass
class Waiting:
    """The runs whose projection a caller waits for."""

    goals: dict[UUID, int]
    """The remaining runs, each with the value that its `run.projected` must reach."""
    failed: set[UUID] = field(default_factory=set)
    """Runs whose projection failed for good."""
    is_here: bool = False
    """Whether this process projects the runs itself."""


class Reprojection:
    """Makes runs of one project pending, and waits for their projection."""

    def __init__(
        self,
        project: ProjectPool,
        project_here: ProjectHere | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project of the runs, with its connections.
            project_here: Projects a run in this process if no projector does, and returns
                whether it did. None: this process only waits.
            idle_seconds: After how long `project_here` is called; see `IDLE_SECONDS`.
        """
        self._project = project
        self._project_here = project_here
        self._idle_seconds = idle_seconds
        self._given = {"project_id": project.project_id, "version": PROJECTION_VERSION}

    async def count(self) -> int:
        """Return how many runs of the project arrived as spans and can be projected again."""
        with store_errors():
            async with in_project(self._project, seconds=None) as connection:
                [(count,)] = await _fetched(connection, _COUNT, self._given)
        assert isinstance(count, int)
        return count

    async def batches(self) -> AsyncGenerator[list[UUID], None]:
        """Yield all runs of the project that can be projected again, `RUNS_AT_ONCE` at a time."""
        after = FIRST_ID
        while True:
            with store_errors():
                async with reading(self._project) as connection:
                    parameters = {**self._given, "after": after, "most": RUNS_AT_ONCE}
                    runs = [run for (run,) in await _fetched(connection, _NEXT, parameters)]
            if not runs:
                return
            yield runs
            after = runs[-1]

    async def request(self, runs: Collection[UUID], *, with_prices: bool = False) -> Waiting:
        """Mark runs as pending, even if their projection failed before, and wake the projectors.

        Args:
            runs: The runs. Runs that do not exist, are deleted, arrived as events, or were
                projected by a newer version of the program are omitted.
            with_prices: Whether computed costs are replaced by those of the current prices.

        Returns:
            The runs that are pending now.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        waiting = Waiting({})
        with store_errors():
            spread = await is_spread(self._project.pool)
            most = runs_per_transaction(RUNS_AT_ONCE, is_spread=spread)
            in_order = sorted(runs)
            for begin in range(0, len(in_order), most):
                async with in_project(self._project, seconds=None) as connection:
                    parameters = {**self._given, "runs": in_order[begin : begin + most]}
                    locked = [run for (run,) in await _fetched(connection, _LOCK, parameters)]
                    parameters |= {"runs": locked, "with_prices": with_prices}
                    waiting.goals.update(await _fetched(connection, _MAKE_PENDING, parameters))
                    await connection.execute(_CLEAR_ERRORS, parameters)
                    await connection.execute(WAKE_PROJECTORS)
        return waiting

    async def wait(self, waiting: Waiting) -> AsyncGenerator[Waiting, None]:
        """Yield the remaining runs repeatedly, until all are projected, failed or deleted.

        If nothing changes for `GIVE_UP_SECONDS`, the generator ends although some runs remain.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        last: dict[UUID, int] = {}
        changed_at = time.monotonic()
        while True:
            attempts = await self._look(waiting)
            yield waiting
            if not waiting.goals:
                return
            idle = time.monotonic() - changed_at
            if attempts != last:
                last, changed_at = attempts, time.monotonic()
            elif idle >= GIVE_UP_SECONDS:
                return
            elif self._project_here is not None and idle >= self._idle_seconds:
                waiting.is_here = True
                project_id = self._project.project_id
                done = [await self._project_here(project_id, *each) for each in attempts.items()]
                if any(done):
                    continue
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self, waiting: Waiting) -> dict[UUID, int]:
        """Remove the runs that are projected or failed from `waiting`.

        Return the number of attempts of each remaining run.
        """
        with store_errors():
            async with reading(self._project) as connection:
                parameters = {**self._given, "runs": list(waiting.goals)}
                rows = await _fetched(connection, _STATES, parameters)
        left: dict[UUID, int] = {}
        for run, projected, is_failed, attempts in rows:
            if projected < waiting.goals[run]:
                if is_failed:
                    waiting.failed.add(run)
                else:
                    left[run] = attempts
        waiting.goals = {run: waiting.goals[run] for run in left}
        return left

    async def settle(self) -> list[UUID]:
        """Wait until the spans that were accepted before the call are projected.

        Returns:
            The runs that could not be projected, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with reading(self._project) as connection:
                waiting = Waiting(dict(await _fetched(connection, _PENDING, self._given)))
        async for _ in self.wait(waiting):
            pass
        return sorted(waiting.failed | waiting.goals.keys())


async def _fetched(
    connection: PoolConnection, query: str, parameters: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, parameters)).fetchall()


def projecting_at(url: str) -> ProjectHere:
    """Return a function that projects a run of a database in a thread of this process."""

    def project(project_id: int, root_plan_id: UUID) -> bool:
        with sync_connection(connection_options(url)) as connection:
            return Projector(connection).project_run(project_id, root_plan_id)

    return lambda project_id, run, _: asyncio.to_thread(project, project_id, run)
