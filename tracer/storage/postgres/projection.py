"""Wait until a run is projected before it is read, or have it projected again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tracer.errors import StoreUnavailable
from tracer.otel.otlp.spans import run_ids_like
from tracer.otel.projection import PROJECTION_VERSION
from tracer.records import Kind
from tracer.records.merge import RULES
from tracer.storage.postgres.citus import is_spread, runs_per_transaction
from tracer.storage.postgres.pool import Pool, PoolConnection, pooled_connection, store_errors
from tracer.storage.postgres.projection_rows import COUNT_PROJECTORS
from tracer.storage.postgres.session import ProjectPool, executed, fetched, in_project
from tracer.storage.postgres.tables import TABLES
from tracer.storage.postgres.watch import DUE_NOW, pending_message
from tracer.store import Behind

# --- Waiting until a projector has projected the pending spans of a run, before the run is read.
#
# docs/explanation/projection.md describes the projection itself.

FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH = 0.02, 0.1, 1.2
"""The pauses in seconds between two checks of a run that a projector projects: the first one, the
longest one, and the factor by which they grow."""

CANDIDATES = 10
"""The most pending runs that are projected before one record is read. These are the runs whose ids
begin with the same bytes as the record's id."""


_PENDING = """
SELECT run.root_plan_id, pending.arrived, pending.spans, pending.since, run.projected,
    run.projection_error"""

_PENDING_RUNS = f"""{_PENDING}
FROM pending_run AS pending
JOIN run ON run.project_id = pending.project_id AND run.root_plan_id = pending.root_plan_id
WHERE pending.project_id = %(project_id)s AND run.deleted_at IS NULL"""

_PENDING_OF_RUNS = f"{_PENDING_RUNS} AND pending.root_plan_id = ANY(%(runs)s)"

_FIND_RUN = f"""{_PENDING}
FROM run LEFT JOIN pending_run AS pending ON pending.project_id = run.project_id
    AND pending.root_plan_id = run.root_plan_id
WHERE run.project_id = %(project_id)s AND run.root_plan_id = %(id)s AND run.deleted_at IS NULL"""
"""Find a run on its own shard. If it is not pending, `arrived` is null."""


def _finding(kind: Kind) -> str:
    """Return the query for the pending runs that a record may belong to.

    The query compares only primary keys, so it is fast. On Citus it reads all shards.
    """
    return f"""{_PENDING_RUNS} AND (
    pending.root_plan_id >= %(first)s AND pending.root_plan_id <= %(last)s
    OR pending.root_plan_id = ANY (ARRAY(
        SELECT root_plan_id FROM {TABLES[kind]}
        WHERE {RULES[kind].id_field} = %(id)s AND project_id = %(project_id)s)))
ORDER BY pending.root_plan_id LIMIT {CANDIDATES}"""


FIND_PENDING = {kind: _finding(kind) for kind in TABLES if kind is not Kind.RUN}

# Any time in the past: runs that nobody waits for are due later.
_MAKE_DUE = """
UPDATE pending_run SET due_at = to_timestamp(0)
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND attempts = 0
    AND due_at > to_timestamp(0) AND due_at < 'infinity'"""


async def count_projectors(pool: Pool) -> int:
    """Return how many projectors of all servers are connected to the database.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    with store_errors():
        async with pooled_connection(pool) as connection:
            ((number,),) = await (await connection.execute(COUNT_PROJECTORS.encode())).fetchall()
    return int(number)


@dataclass(frozen=True)
class _PendingRun:
    root_plan_id: UUID
    arrived: int
    spans: int
    since: datetime
    projected: int
    error: str | None


class PostgresProjection:
    """`tracer.store.SpanProjection` over a project's connections."""

    def __init__(self, project: ProjectPool) -> None:
        """Set the project, with its connections."""
        self._project = project

    async def catch_up(self, kind: Kind, record_id: UUID, *, seconds: float = 2.0) -> Behind | None:
        """Wait until the pending spans of a record's run are projected."""
        time = asyncio.get_running_loop().time
        end, pause = time() + seconds, FIRST_PAUSE
        pending = await self._find(kind, record_id)
        goals = {run.root_plan_id: run.arrived for run in pending}
        if goals:
            await self._wake_projectors(list(goals))
        while pending:
            if time() >= end or all(run.error is not None for run in pending):
                errors = [run.error for run in pending if run.error is not None]
                return Behind(
                    sum(run.spans for run in pending),
                    min(run.since for run in pending),
                    errors[0] if errors else None,
                )
            await asyncio.sleep(min(pause, max(0.0, end - time())))
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
            still = await self._fetch(_PENDING_OF_RUNS, {"runs": list(goals)})
            pending = [run for run in still if run.projected < goals[run.root_plan_id]]
        return None

    async def _find(self, kind: Kind, record_id: UUID) -> list[_PendingRun]:
        """Return the pending runs that a record may belong to. Usually there are none."""
        if kind in (Kind.RUN, Kind.PLAN):  # the id of a root plan is that of its run
            values = {"project_id": self._project.project_id, "id": record_id}
            found = await fetched(self._project, _FIND_RUN, values)
            if found or kind is Kind.RUN:
                return [_PendingRun(*row) for row in found if row[1] is not None]
        # Another id may begin like a trace id by chance: then that run is projected a little
        # earlier. Records that spans carry keep their own ids, so they are looked up.
        first, last = run_ids_like(record_id)
        parameters = {"id": record_id, "first": first, "last": last}
        return await self._fetch(FIND_PENDING[kind], parameters)

    async def _fetch(self, query: str, parameters: Mapping[str, Any]) -> list[_PendingRun]:
        given = {"project_id": self._project.project_id, **parameters}
        return [_PendingRun(*row) for row in await fetched(self._project, query, given)]

    async def _wake_projectors(self, runs: list[UUID]) -> None:
        """Put runs at the front of the queue, and notify the projectors.

        If a run has failed attempts or is being projected, its due time does not change. A database
        that is read-only for a while, because its disk is nearly full, refuses this: then the read
        only waits.
        """
        with suppress(StoreUnavailable), store_errors():
            await executed(self._project, [(_MAKE_DUE, [self._project.project_id, runs])])
            async with pooled_connection(self._project.pool) as connection:
                await connection.execute(*pending_message(DUE_NOW, runs))


# --- Projecting runs again: they are made pending, and the projectors do the rest.

RUNS_AT_ONCE = 50
"""How many runs are made pending together. If it were all runs of a project, new spans would have
to wait for them."""

GIVE_UP_SECONDS = 120.0
"""Waiting ends after this time without progress. It exceeds the 60 s after which a projector is
killed."""

POLL_SECONDS = 0.2

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
UPDATE run SET projection_error = NULL, revision = revision + 1,
    changed_at = statement_timestamp()
WHERE {_OF_RUNS} AND projection_error IS NOT NULL"""

_NEXT = f"""
SELECT root_plan_id FROM run
WHERE project_id = %(project_id)s AND root_plan_id > %(after)s AND {_IS_PROJECTABLE}
    AND (NOT %(outdated)s OR projection_version < %(version)s AND NOT EXISTS (
        SELECT FROM pending_run AS pending
        WHERE pending.project_id = run.project_id AND pending.root_plan_id = run.root_plan_id
            AND (pending.due_at < 'infinity' OR NOT %(with_failed)s)))
ORDER BY root_plan_id LIMIT %(most)s"""

_STATES = f"""
SELECT root_plan_id, projected, coalesce(due_at = 'infinity', false), coalesce(attempts, 0)
FROM run LEFT JOIN pending_run USING (project_id, root_plan_id)
WHERE {_OF_RUNS} AND deleted_at IS NULL"""

_PENDING_REPROJECTIONS = """
SELECT root_plan_id, arrived FROM pending_run
WHERE project_id = %(project_id)s AND since <= statement_timestamp()"""


_UNLINKED = """
SELECT root_plan_id, revision, linked_revision FROM run
WHERE project_id = %(project_id)s AND NOT is_linked AND recorded_at <= %(before)s"""


class Reprojection:
    """Makes runs of one project pending, and waits for their projection."""

    def __init__(self, project: ProjectPool) -> None:
        """Set the project of the runs, with its connections."""
        self._project = project
        self._given = {"project_id": project.project_id, "version": PROJECTION_VERSION}

    async def batches(
        self, *, outdated: bool = False, with_failed: bool = False
    ) -> AsyncGenerator[list[UUID], None]:
        """Yield the runs of the project that can be projected again, `RUNS_AT_ONCE` at a time.

        Args:
            outdated: Only runs that an older version of the program projected, and that are not
                pending.
            with_failed: Include outdated runs whose projection failed permanently.
        """
        after = UUID(int=0)
        parameters = {"outdated": outdated, "with_failed": with_failed, "most": RUNS_AT_ONCE}
        while rows := await self._fetch(_NEXT, parameters | {"after": after}):
            runs = [run for (run,) in rows]
            yield runs
            after = runs[-1]

    async def request(
        self, runs: Collection[UUID], *, with_prices: bool = False
    ) -> dict[UUID, int]:
        """Mark runs as pending, even if their projection failed before, and wake the projectors.

        Args:
            runs: The runs. Runs that do not exist, are deleted, arrived as events, or were
                projected by a newer version of the program are omitted.
            with_prices: Whether computed costs are replaced by those of the current prices.

        Returns:
            The runs that are pending now, each with the value that its `run.projected` must reach.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        goals: dict[UUID, int] = {}
        with store_errors():
            spread = await is_spread(self._project.pool)
            most = runs_per_transaction(RUNS_AT_ONCE, is_spread=spread)
            in_order = sorted(runs)
            for begin in range(0, len(in_order), most):
                async with in_project(self._project, seconds=None) as connection:
                    parameters = {**self._given, "runs": in_order[begin : begin + most]}
                    locked = [run for (run,) in await _fetched(connection, _LOCK, parameters)]
                    parameters |= {"runs": locked, "with_prices": with_prices}
                    goals.update(await _fetched(connection, _MAKE_PENDING, parameters))
                    await connection.execute(_CLEAR_ERRORS, parameters)
                async with pooled_connection(self._project.pool) as connection:
                    await connection.execute(*pending_message(DUE_NOW, locked))
        return goals

    async def wait(self, goals: Mapping[UUID, int]) -> list[UUID]:
        """Wait until runs are projected, failed or deleted.

        Args:
            goals: The result of `request`.

        Returns:
            The runs whose projection failed, or made no progress for `GIVE_UP_SECONDS`, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        failed: list[UUID] = []
        last: dict[UUID, int] = {}
        changed_at = time.monotonic()
        left = dict.fromkeys(goals, 0)
        while left:
            states = await self._fetch(_STATES, {"runs": list(left)})
            behind = [state for state in states if state[1] < goals[state[0]]]
            failed += [run for run, _, is_failed, _ in behind if is_failed]
            left = {run: attempts for run, _, is_failed, attempts in behind if not is_failed}
            if left != last:
                last, changed_at = left, time.monotonic()
            elif time.monotonic() - changed_at >= GIVE_UP_SECONDS:
                break
            if left:
                await asyncio.sleep(POLL_SECONDS)
        return sorted([*failed, *left])

    async def settle(self) -> list[UUID]:
        """Wait until the runs that were accepted before the call are projected and linked.

        Returns:
            The runs that could not be projected or linked, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        [(now,)] = await self._fetch("SELECT statement_timestamp()", {})
        failed = await self.wait(dict(await self._fetch(_PENDING_REPROJECTIONS, {})))
        goals: dict[UUID, int] = {}
        last, changed_at = goals, time.monotonic()
        while rows := await self._fetch(_UNLINKED, {"before": now}):
            # A run that changes all the time is visited, too, but seldom up to date.
            left = {run: at for run, goal, at in rows if at < goals.setdefault(run, goal)}
            if left != last:
                last, changed_at = left, time.monotonic()
            if not left or time.monotonic() - changed_at >= GIVE_UP_SECONDS:
                return sorted({*failed, *left})
            await asyncio.sleep(POLL_SECONDS)
        return failed

    async def _fetch(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        return await fetched(self._project, query, self._given | parameters)


async def _fetched(
    connection: PoolConnection, query: str, parameters: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, parameters)).fetchall()
