"""Hourly roll-ups of tool statistics, which a job brings up to date every minute.

`run_group` contains the contribution of each run to each tool and hour, `tool_hour` the sum of all
runs. Each change of a record raises the revision of its run. `run.summed_revision` is the revision
up to which the run is rolled up. So the job finds changed runs without help from writers. See
decision 28.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tracer.logs import get_logger
from tracer.storage.postgres.connection.pool import Pool, PoolConnection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.projects.periodic_job import (
    PeriodicJob,
    for_each_project,
    rest_as_long_as_it_took,
)
from tracer.storage.postgres.schema.record_tables import ALWAYS, column_type
from tracer.storage.postgres.stats.figures_sql import FIGURES, added_up, calls_of, figures

LOOK_SECONDS = 60.0
"""The pause between two passes."""

RUNS_AT_ONCE = 500
"""The most runs that one transaction rolls up."""

CALLS_AT_ONCE = 5_000
"""The most tool calls that the runs of one transaction have, unless a single run has more. The
event loop compares their groups, which takes some 30 ms."""

_LEAST = UUID(int=0)

log = get_logger(__name__)


class RollupJob(PeriodicJob):
    """Rolls up all projects in the background. Use it as an async context manager.

    Every server runs one. They share the work.
    """

    trouble = "hours_not_summed"

    def __init__(self, pool: Pool, look_seconds: float = LOOK_SECONDS) -> None:
        """Set the pool, which sees all projects, and the pause between two passes in seconds."""
        super().__init__(look_seconds)
        self._pool = pool
        self.hours = 0
        """How many times an hour's figures were computed."""

    async def run_once(self) -> None:
        """Roll up all projects once.

        Raises:
            StoreUnavailable: The database does not answer. Committed batches stay.
        """
        await for_each_project(self._pool, self._roll_up, self.trouble)

    async def _roll_up(self, project: ProjectPool) -> None:
        began = time.monotonic()
        before = self.hours
        async with aclosing(roll_up(project)) as batches:
            async for hours in batches:
                self.hours += hours
                began = await rest_as_long_as_it_took(began)
        if self.hours > before:
            log.info("hours_summed", project_id=project.project_id, hours=self.hours - before)


async def roll_up(
    project: ProjectPool, runs_at_once: int = RUNS_AT_ONCE
) -> AsyncGenerator[int, None]:
    """Roll up the changed runs of a project, unless another server is doing so.

    The pass visits each run that had changed when the pass began, the oldest first. Then it sets
    `project.summed_at` to the time when it began. Runs that change meanwhile are left to the next
    pass, so that a pass always ends.

    Args:
        project: The project.
        runs_at_once: The most runs in a batch.

    Yields:
        The number of hours that each batch computed, after its commit.

    Raises:
        StoreUnavailable: The database does not answer. Committed batches stay.
    """
    parameters: dict[str, Any] = {
        "project_id": project.project_id,
        "at": "-infinity",
        "run": _LEAST,
    }
    with store_errors():
        async with in_project(project, seconds=None) as connection:
            [(began,)] = await _rows(connection, "SELECT statement_timestamp()")
            newest = await _rows(connection, _NEWEST, parameters)
        if newest:
            [(parameters["last_at"], parameters["last_run"])] = newest
        while newest:
            async with in_project(project, seconds=None) as connection:
                if not await _rows(connection, f"{_LOCK} SKIP LOCKED", parameters):
                    return
                rows = await _rows(connection, _CHANGED, parameters | {"most": runs_at_once})
                if not rows:
                    break
                runs = _batch([_ChangedRun(*row) for row in rows])
                hours = await _rolled_up(connection, project.project_id, runs)
            parameters |= {"at": runs[-1].recorded_at, "run": runs[-1].root_plan_id}
            yield hours
        async with in_project(project, seconds=None) as connection:
            await connection.execute(_DONE, parameters | {"began": began})


async def roll_up_runs(project: ProjectPool, runs: Collection[UUID]) -> None:
    """Roll up some runs now. Deleted runs are removed from the statistics."""
    parameters = {"project_id": project.project_id, "runs": list(runs)}
    async with in_project(project, seconds=None) as connection:
        await connection.execute(_LOCK, parameters)
        rows = await _rows(connection, _RUNS, parameters)
        await _rolled_up(connection, project.project_id, [_ChangedRun(*row) for row in rows])


class _ChangedRun(NamedTuple):
    root_plan_id: UUID
    recorded_at: datetime
    revision: int
    tool_calls: int
    is_deleted: bool


def _batch(runs: list[_ChangedRun]) -> list[_ChangedRun]:
    """Return the first runs whose calls number at most `CALLS_AT_ONCE`, but at least one run."""
    calls = 0
    for place, run in enumerate(runs):
        calls += run.tool_calls
        if calls > CALLS_AT_ONCE:
            return runs[: max(place, 1)]
    return runs


async def _rolled_up(connection: PoolConnection, project_id: int, runs: list[_ChangedRun]) -> int:
    """Roll up runs in the caller's transaction, which locks the project's roll-ups.

    `run.summed_revision` is set to the revision in `runs`, which an earlier statement has read. If
    another transaction changed a run after that statement, the figures may or may not contain the
    change. The run's revision is then greater than `summed_revision`, so the next pass rolls the
    run up again.

    Returns:
        The number of hours that were computed.
    """
    parameters: dict[str, Any] = {
        "project_id": project_id,
        "runs": [run.root_plan_id for run in runs],
        "open": [run.root_plan_id for run in runs if not run.is_deleted],
    }
    stored = set(await _rows(connection, _STORED, parameters))
    computed = set(await _rows(connection, _FOUND, parameters))
    changed = {(run, hour) for run, hour, *_ in stored ^ computed}
    if changed:
        parameters["changed_runs"], parameters["changed_hours"] = map(
            list, zip(*changed, strict=True)
        )
        new = (row for row in computed if row[:2] in changed)
        parameters["groups"] = json.dumps(
            [dict(zip(_TYPES, (number, *row), strict=True)) for number, row in enumerate(new)],
            default=str,
        )
        await connection.execute(_REMOVE, parameters)
        await connection.execute(_ADD, parameters)
        parameters["hours"] = sorted({hour for _, hour in changed})
        await connection.execute(_REMOVE_HOURS, parameters)
        await connection.execute(_ADD_HOURS, parameters)
    # Last, so that writers wait for a few milliseconds at most. In the order in which writers lock
    # runs, which avoids deadlocks: one UPDATE of all runs would lock them in any order.
    marks = [
        {"project_id": project_id, "run": run.root_plan_id, "revision": run.revision}
        for run in sorted(runs)
    ]
    await connection.cursor().executemany(_MARK, marks)
    return len(parameters.get("hours", ()))


async def _rows(
    connection: PoolConnection, query: str, parameters: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, parameters)).fetchall()


# The project's row: no other program can lock it.
_LOCK = "SELECT project_id FROM project WHERE project_id = %(project_id)s FOR NO KEY UPDATE"

# `is_summed` is computed from the two revisions when a row is stored. An index that had the
# revisions in its condition would be written with each update of a run.
_IS_CHANGED = "project_id = %(project_id)s AND NOT is_summed"

_NEWEST = f"""
SELECT recorded_at, root_plan_id FROM run WHERE {_IS_CHANGED}
ORDER BY recorded_at DESC, root_plan_id DESC LIMIT 1"""

_RUN = "SELECT root_plan_id, recorded_at, revision, tool_calls, deleted_at IS NOT NULL FROM run"

_CHANGED = f"""{_RUN}
WHERE {_IS_CHANGED} AND (recorded_at, root_plan_id) <= (%(last_at)s, %(last_run)s)
    AND (recorded_at, root_plan_id) > (%(at)s::timestamptz, %(run)s)
ORDER BY recorded_at, root_plan_id LIMIT %(most)s"""

_RUNS = f"{_RUN} WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)"

_KEY = ("number", "root_plan_id", "hour", "tool_name")
_TYPES = {name: column_type("run_group", name) for name in (*_KEY, *FIGURES)}
# As text, because Python's datetime does not cover all years, and a list has no hash.
_TEXTS = {name for name, type_ in _TYPES.items() if type_.endswith(("ZONE", "[]"))}


def _hashable(hour: str, name: str) -> str:
    """Return the SELECT list of a roll-up group, with values that Python can hash.

    The group's number is left out.

    Args:
        hour: The SQL of the group's hour.
        name: The SQL of the group's tool.
    """
    columns = (f"{each}::text" if each in _TEXTS else each for each in FIGURES)
    return f"root_plan_id, {hour}::text, {name}, {', '.join(columns)}"


_STORED = f"""
SELECT {_hashable("hour", "tool_name")} FROM run_group
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)"""

_OF_RUNS = calls_of(
    "FROM act_tool_info WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(open)s)"
    f" AND {ALWAYS} AND name IS NOT NULL",
    "date_bin('1 hour', {}, 'epoch')",
)
_FOUND = f"""
SELECT {_hashable("at", "name")}
FROM ({figures(_OF_RUNS, ("root_plan_id", "at", "name"))}) AS found"""

_REMOVE = """
DELETE FROM run_group AS stored
USING unnest(%(changed_runs)s::uuid[], %(changed_hours)s::text[]::timestamptz[])
    AS changed (run, hour)
WHERE stored.project_id = %(project_id)s AND stored.root_plan_id = changed.run
    AND stored.hour = changed.hour AND stored.root_plan_id = ANY(%(runs)s)"""

_ADD = f"""
INSERT INTO run_group (project_id, {", ".join(_TYPES)})
SELECT %(project_id)s, {", ".join(f"{name}::{type_}" for name, type_ in _TYPES.items())}
FROM json_to_recordset(%(groups)s) AS new ({
    ", ".join(f"{name} {'text' if name in _TEXTS else type_}" for name, type_ in _TYPES.items())
})"""

_OF_HOURS = "project_id = %(project_id)s AND hour = ANY(%(hours)s::text[]::timestamptz[])"

_REMOVE_HOURS = f"DELETE FROM tool_hour WHERE {_OF_HOURS}"

_ADD_HOURS = f"""
INSERT INTO tool_hour (project_id, number, hour, tool_name, {", ".join(FIGURES)})
SELECT %(project_id)s, row_number() OVER (PARTITION BY hour ORDER BY tool_name), hour, tool_name,
    {", ".join(FIGURES)}
FROM ({added_up(f"SELECT * FROM run_group WHERE {_OF_HOURS}", ("hour", "tool_name"))}) AS hours"""

_MARK = """
UPDATE run SET summed_revision = %(revision)s
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND revision >= %(revision)s"""

_DONE = "UPDATE project SET summed_at = %(began)s WHERE project_id = %(project_id)s"
