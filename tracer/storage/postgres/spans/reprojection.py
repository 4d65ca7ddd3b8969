"""Projecting runs again: they are made pending, and the projectors do the rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any
from uuid import UUID

from tracer.otel.projection.project import PROJECTION_VERSION
from tracer.storage.postgres.connection.citus import is_spread, runs_per_transaction
from tracer.storage.postgres.connection.notifications import WAKE_PROJECTORS
from tracer.storage.postgres.connection.pool import PoolConnection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, fetched, in_project

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
UPDATE run SET projection_error = NULL, revision = revision + 1
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

_PENDING = """
SELECT root_plan_id, arrived FROM pending_run
WHERE project_id = %(project_id)s AND since <= statement_timestamp()"""


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
                    await connection.execute(WAKE_PROJECTORS)
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
        """Wait until the spans that were accepted before the call are projected.

        Returns:
            The runs that could not be projected, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await self.wait(dict(await self._fetch(_PENDING, {})))

    async def _fetch(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        return await fetched(self._project, query, self._given | parameters)


async def _fetched(
    connection: PoolConnection, query: str, parameters: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, parameters)).fetchall()
