"""Roll-ups: tool statistics that are summed per run and hour, and the job that writes them.

The job also writes the roll-ups of days (`days`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tracer.logs import get_logger
from tracer.storage.postgres.days import replace_contributions
from tracer.storage.postgres.histograms import bucket_of
from tracer.storage.postgres.pool import (
    SyncConnection,
    postponing_errors,
    store_errors,
    sync_connection,
)
from tracer.storage.postgres.projection_rows import ProjectorSession
from tracer.storage.postgres.run_tables import abandoned_at
from tracer.storage.postgres.session import ProjectPool
from tracer.storage.postgres.tables import ALWAYS, IS_FAILED, IS_OPEN, START, column_type

# --- The SQL that counts tool calls, and that adds up earlier counts.
#
# Counts and histograms of durations can be summed. So figures of single calls, of runs
# (`run_group`) and of hours (`tool_hour`) can be added up. The result is the same as if every call
# were counted.

DURATION = "(extract(epoch FROM finished_at - started_at) * 1000)::float8"
"""The duration of a call in milliseconds; null if it has not ended."""

_OWN_TIME = """(
    extract(epoch FROM call.finished_at - call.started_at) - coalesce((
        SELECT sum(extract(epoch FROM upper(part) - lower(part)))
        FROM unnest(
            opened.times * tstzmultirange(tstzrange(call.started_at, call.finished_at))
        ) AS part
    ), 0)
) * 1000"""
"""The duration of a call in milliseconds, without the times in which its sub-plans ran. Sub-plans
may run at the same time, and longer than the call."""

FAILED_AT = f"coalesce(finished_at, {START})"
"""The time of a failed call's failure: its end, or its start if it has no end."""

COUNTS = f"""
    count(*) AS calls,
    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE {IS_FAILED}) AS failed,
    count(*) FILTER (WHERE {IS_FAILED} AND has_failed_below) AS failed_below,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NULL) AS running,
    coalesce(sum(sub_plans), 0)::bigint AS sub_plans"""
"""The number of calls by outcome, and of the sub-plans that they opened."""

COUNTED = (
    *("calls", "succeeded", "failed", "failed_below", "cancelled", "abandoned", "running"),
    "sub_plans",
)
"""The columns of `COUNTS`. They are combined by their sums."""

_GREATEST = ("tool_type", "latest_at", "greatest_ms", "failed_at")
"""The columns that are combined by their greatest values."""

FIGURES = (
    *COUNTED,
    *_GREATEST,
    "buckets",
    "bucket_counts",
    "own_buckets",
    "own_bucket_counts",
)
"""The columns of `run_group` and `tool_hour` whose values can be combined."""

SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
"""The percentiles, as fractions, by their names."""

OWN_SHARES = {f"own_{name}": share for name, share in SHARES.items()}
"""The percentiles of own times, as fractions, by their names."""


def _sums(condition: str = "true") -> str:
    """Return the SELECT list that combines the counts of the rows that meet a condition."""
    filtered = f"FILTER (WHERE {condition})"
    return ", ".join(
        (
            *(f"(sum({column}) {filtered})::bigint AS {column}" for column in COUNTED),
            f'max(tool_type COLLATE "C") {filtered} AS tool_type',
            *(f"max({column}) {filtered} AS {column}" for column in _GREATEST[1:]),
        )
    )


def calls_of(source: str, at: str = "{}") -> str:
    """Return a query for calls, each with the number of its sub-plans and its own time.

    Args:
        source: The end of a query for rows of `act_tool_info`, from `FROM` on.
        at: The SQL expression of the column `at`, in which `{}` is the time when the call started.
    """
    # Grouped by run: Citus does not push down a lateral aggregate without its shard key.
    return f"""
    SELECT call.*, coalesce(opened.sub_plans, 0) AS sub_plans,
        coalesce(opened.has_failed, false) AS has_failed_below,
        CASE WHEN opened.times IS NOT NULL AND call.duration_ms > 0 THEN ({_OWN_TIME})::float8
            ELSE call.duration_ms END AS own_ms
    FROM (
        SELECT root_plan_id, tool_call_id, name COLLATE "C" AS name, tool_type, status,
            {abandoned_at("act_tool_info")} AS abandoned_at, {START} AS latest_at,
            {at.format(START)} AS at,
            started_at, finished_at, {DURATION} AS duration_ms,
            CASE WHEN {IS_FAILED} THEN {FAILED_AT} END AS failed_at
        {source}
    ) AS call LEFT JOIN LATERAL (
        SELECT root_plan_id, count(*) AS sub_plans, bool_or({IS_FAILED}) AS has_failed,
            range_agg(tstzrange(started_at, finished_at))
                FILTER (WHERE started_at <= coalesce(finished_at, 'infinity')) AS times
        FROM plan_execution_record AS plan
        WHERE plan.tool_call_id = call.tool_call_id AND plan.root_plan_id = call.root_plan_id
            AND plan.project_id = %(project_id)s
        GROUP BY plan.root_plan_id
    ) AS opened ON true"""


def exact_figures(calls: str, key: str) -> str:
    """Return a query for the counts and the exact percentiles of calls, grouped by `key`."""
    return f"""
    SELECT {key}, {COUNTS}, max(tool_type COLLATE "C") AS tool_type, max(latest_at) AS latest_at,
        percentile_disc(ARRAY{[*SHARES.values()]}) WITHIN GROUP (ORDER BY duration_ms)
            AS percentiles,
        percentile_disc(ARRAY{[*SHARES.values()]}) WITHIN GROUP (ORDER BY own_ms)
            AS own_percentiles
    FROM ({calls}) AS call GROUP BY {key}"""


def _in_order(column: str, condition: str) -> str:
    has_ended = f"FILTER (WHERE bucket IS NOT NULL AND {condition})"
    return f"coalesce(array_agg({column} ORDER BY bucket) {has_ended}, '{{}}')"


def _histograms(counts: str) -> str:
    """Return the SQL of two histograms, of durations and of own times, over rows with buckets.

    Args:
        counts: The column that has the number of calls in each bucket.
    """
    return f"""{_in_order("bucket", "NOT is_own")} AS buckets,
        {_in_order(counts, "NOT is_own")} AS bucket_counts,
        {_in_order("bucket", "is_own")} AS own_buckets,
        {_in_order(counts, "is_own")} AS own_bucket_counts"""


_ADDED = ", ".join(
    (
        *COUNTED,
        *_GREATEST,
        "coalesce(buckets, '{}') AS buckets",
        "coalesce(bucket_counts, '{}') AS bucket_counts",
        "CASE WHEN sub_plans > 0 THEN own_buckets END AS own_buckets",
        "CASE WHEN sub_plans > 0 THEN own_bucket_counts END AS own_bucket_counts",
    )
)
"""The SELECT list of `FIGURES`. If no sub-plans were opened, own times equal the durations, and are
not stored."""


def figures(calls: str, keys: Sequence[str]) -> str:
    """Return a query for the `FIGURES` of calls, grouped by some columns."""
    by = ", ".join(keys)
    return f"""
    SELECT {by}, {_ADDED} FROM (
        SELECT {by}, {_sums("NOT is_own")}, {_histograms("calls")}
        FROM (
            SELECT {by}, is_own, bucket, {COUNTS}, max(tool_type COLLATE "C") AS tool_type,
                max(latest_at) AS latest_at, max(duration_ms) AS greatest_ms,
                max(failed_at) AS failed_at
            FROM ({calls}) AS call CROSS JOIN LATERAL (VALUES
                (false, {bucket_of("call.duration_ms")}), (true, {bucket_of("call.own_ms")})
            ) AS counted (is_own, bucket)
            GROUP BY {by}, is_own, bucket
        ) AS by_bucket GROUP BY {by}
    ) AS added"""


def added_up(rows: str, keys: Sequence[str]) -> str:
    """Return a query that adds up the `FIGURES` of `rows`, grouped by the columns `keys`."""
    by = ", ".join(keys)
    return f"""
    WITH part AS MATERIALIZED ({rows})
    SELECT {by}, {_ADDED}
    FROM (SELECT {by}, {_sums()} FROM part GROUP BY {by}) AS sums
    LEFT JOIN (
        SELECT {by}, {_histograms("filled")}
        FROM (
            SELECT {by}, is_own, bucket, sum(filled)::bigint AS filled
            FROM (
                SELECT {by}, false AS is_own, unnest(buckets) AS bucket,
                    unnest(bucket_counts) AS filled
                FROM part
                UNION ALL
                SELECT {by}, true, unnest(coalesce(own_buckets, buckets)),
                    unnest(coalesce(own_bucket_counts, bucket_counts))
                FROM part
            ) AS each GROUP BY {by}, is_own, bucket
        ) AS by_bucket GROUP BY {by}
    ) AS histogram USING ({by})"""


# --- Hourly roll-ups of tool statistics, which projector processes bring up to date every minute.
#
# `run_group` contains the contribution of each run to each tool and hour, `tool_hour` the sum of
# all runs; likewise `run_part_of_day` and `run_day`. Each change of a record raises the revision of
# its run. `run.summed_revision` is the revision up to which the run is rolled up. So the job finds
# changed runs without help from writers. See decision 28.

LOOK_SECONDS = 60.0
"""The time between the beginnings of two passes of a process."""

RUNS_AT_ONCE = 500
"""The most runs that one transaction rolls up."""

CALLS_AT_ONCE = 5_000
"""The most tool calls that the runs of one transaction have, unless a single run has more. A
process compares their groups, which takes some 30 ms."""

_LEAST = UUID(int=0)

log = get_logger(__name__)


_DUE = """
SELECT project_id FROM project
WHERE summed_at IS NULL OR summed_at < statement_timestamp() - interval '30 seconds'
ORDER BY project_id"""
"""Find the projects that no other process has rolled up in this minute."""

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

COMPUTED_GROUPS = f"""
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
}) ON CONFLICT DO NOTHING"""  # without a conflict, as in `linker.ADD_LINKS`

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


class Sums:
    """The queue of roll-ups, of a projector process (`processes.BackgroundWork`)."""

    def __init__(self, connection: SyncConnection) -> None:
        """Take a connection in autocommit mode that is not pooled."""
        self._connection = connection
        self._batches = self._passes()

    def add_due(self) -> bool:
        """Roll up a batch, if a pass is due. Return whether there was one.

        Raises:
            psycopg.OperationalError: The database does not answer. Committed batches stay.
        """
        return next(self._batches)

    def _passes(self) -> Iterator[bool]:
        while True:
            began = time.monotonic()
            for (project_id,) in self._connection.execute(_DUE).fetchall():
                yield from self._pass(project_id)
            while time.monotonic() < began + LOOK_SECONDS:
                yield False

    def _pass(self, project_id: int) -> Iterator[bool]:
        total = 0
        with postponing_errors("hours_not_summed", project_id):
            for hours in roll_up(self._connection, project_id):
                total += hours
                yield True
        if total:
            log.info("hours_summed", project_id=project_id, hours=total)


def roll_up(
    connection: SyncConnection, project_id: int, runs_at_once: int = RUNS_AT_ONCE
) -> Iterator[int]:
    """Roll up the changed runs of a project, unless another process is doing so.

    The pass visits each run that had changed when the pass began, the oldest first. Then it sets
    `project.summed_at` to the time when it began. Runs that change meanwhile are left to the next
    pass, so that a pass always ends.

    Args:
        connection: A connection in autocommit mode that is not pooled.
        project_id: The project.
        runs_at_once: The most runs in a batch.

    Yields:
        The number of hours that each batch computed, after its commit.
    """
    session = ProjectorSession(connection)
    parameters: dict[str, Any] = {"project_id": project_id, "at": "-infinity", "run": _LEAST}
    with session.in_project(project_id):
        [(began,)] = _fetch_all(session, "SELECT statement_timestamp()")
        newest = _fetch_all(session, _NEWEST, parameters)
    if newest:
        [(parameters["last_at"], parameters["last_run"])] = newest
    while newest:
        with session.in_project(project_id):
            # Writers hold locks for a moment only. If one does not, projections must go on.
            session.connection.execute("SET LOCAL lock_timeout = '5s'")
            if not _fetch_all(session, f"{_LOCK} SKIP LOCKED", parameters):
                return
            rows = _fetch_all(session, _CHANGED, parameters | {"most": runs_at_once})
            if not rows:
                break
            runs = _batch([_ChangedRun(*row) for row in rows])
            hours = _rolled_up(session, project_id, runs)
        parameters |= {"at": runs[-1].recorded_at, "run": runs[-1].root_plan_id}
        yield hours
    with session.in_project(project_id):
        session.connection.execute(_DONE, parameters | {"began": began})


async def roll_up_runs(project: ProjectPool, runs: Collection[UUID]) -> None:
    """Roll up some runs now. Deleted runs are removed from the statistics.

    Raises:
        StoreUnavailable: The database does not answer.
    """

    def roll_up_now() -> None:
        project_id = project.project_id
        parameters = {"project_id": project_id, "runs": list(runs)}
        options: Any = project.pool.kwargs
        with sync_connection(options) as connection:
            session = ProjectorSession(connection)
            with session.in_project(project_id):
                session.connection.execute(_LOCK, parameters)
                rows = _fetch_all(session, _RUNS, parameters)
                _rolled_up(session, project_id, [_ChangedRun(*row) for row in rows])

    with store_errors():
        await asyncio.to_thread(roll_up_now)


class _ChangedRun(NamedTuple):
    root_plan_id: UUID
    recorded_at: datetime
    revision: int
    tool_calls: int
    is_deleted: bool


def _batch(runs: list[_ChangedRun]) -> list[_ChangedRun]:
    """Return the first runs whose calls number at most `CALLS_AT_ONCE`, but at least one run."""
    calls = 0
    for index, run in enumerate(runs):
        calls += run.tool_calls
        if calls > CALLS_AT_ONCE:
            return runs[: max(index, 1)]
    return runs


def _rolled_up(session: ProjectorSession, project_id: int, runs: list[_ChangedRun]) -> int:
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
    stored = set(_fetch_all(session, _STORED, parameters))
    computed = set(_fetch_all(session, COMPUTED_GROUPS, parameters))
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
        session.connection.execute(_REMOVE, parameters)
        session.connection.execute(_ADD, parameters)
        parameters["hours"] = sorted({hour for _, hour in changed})
        session.connection.execute(_REMOVE_HOURS, parameters)
        session.connection.execute(_ADD_HOURS, parameters)
    replace_contributions(session.connection, project_id, parameters["runs"], parameters["open"])
    # Last, so that writers wait for a few milliseconds at most. In the order in which writers lock
    # runs, which avoids deadlocks: one UPDATE of all runs would lock them in any order.
    marks = [
        {"project_id": project_id, "run": run.root_plan_id, "revision": run.revision}
        for run in sorted(runs)
    ]
    session.connection.cursor().executemany(_MARK, marks)
    return len(parameters.get("hours", ()))


def _fetch_all(
    session: ProjectorSession, query: str, parameters: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    return session.connection.execute(query.encode(), parameters).fetchall()
