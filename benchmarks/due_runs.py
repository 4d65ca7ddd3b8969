"""The cost of finding due runs after 100,000 runs were pending while vacuum was blocked.

An open transaction, such as a backup or a forgotten session, keeps Postgres from removing the old
versions of rows. 100,000 is ten minutes at 10,000 runs a minute; here they pass as fast as Postgres
writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
from psycopg import RawCursor

from benchmarks.figures import Figure
from benchmarks.surroundings import Bench
from tracer.otel.projection import PROJECTION_VERSION
from tracer.storage.postgres.projection_rows import DUE, FIND_DUE
from tracer.storage.postgres.projector import DUE_AT_ONCE, FOUND_AT_ONCE

RUNS = 100_000
RUNS_AT_ONCE = 500
TIMES = 5

_RUN_IDS = "SELECT md5(i::text)::uuid FROM generate_series($1::integer, $2) AS i"

_STEPS = (
    # A run becomes pending, and another part of it arrives, ...
    f"""INSERT INTO pending_run (project_id, root_plan_id, arrived, spans, size, since, seen_at,
    due_at) SELECT 1, id, 1, 1, 1, now(), now(), now() FROM ({_RUN_IDS}) AS given (id)""",
    f"""UPDATE pending_run SET arrived = 2, seen_at = now(), due_at = now()
    WHERE root_plan_id IN ({_RUN_IDS})""",
    # ... a projection begins, and commits.
    f"UPDATE pending_run SET attempts = 1 WHERE root_plan_id IN ({_RUN_IDS})",
    f"DELETE FROM pending_run WHERE root_plan_id IN ({_RUN_IDS})",
)


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the statements of a projector's look, before and after."""
    runs = bench.sized(RUNS, 2_000)
    with bench.database() as url, psycopg.connect(url, autocommit=True) as connection:
        # Only rows of `pending_run` are of interest here.
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        before = {name: _milliseconds(connection, *each) for name, each in _LOOK.items()}
        with psycopg.connect(url) as other:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT FROM pending_run")
            for first in range(0, runs, RUNS_AT_ONCE):
                for statement in _STEPS:
                    RawCursor(connection).execute(statement, [first, first + RUNS_AT_ONCE - 1])
                if first % 20_000 == 0:
                    bench.say(f"{first:,} runs came and went")
            for name, each in _LOOK.items():
                after = _milliseconds(connection, *each)
                yield Figure(
                    name=f"{name}, after {runs:,} runs beside an old transaction",
                    value=after,
                    unit="ms",
                    yardstick="in an empty table",
                    ratio=after / before[name],
                )


_LOOK: dict[str, tuple[str, list[Any]]] = {
    "all due runs": (FIND_DUE, [None, FOUND_AT_ONCE]),
    "100 named runs": (
        DUE,
        [None, [UUID(int=i) for i in range(100)], PROJECTION_VERSION, True, DUE_AT_ONCE],
    ),
}


def _milliseconds(connection: psycopg.Connection, statement: str, parameters: list[Any]) -> float:
    """Return the least time to plan and execute a statement, by Postgres's own clock."""
    cursor = RawCursor(connection)
    taken = []
    for _ in range(TIMES):
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        [([plan],)] = cursor.fetchall()
        taken.append(float(plan["Planning Time"] + plan["Execution Time"]))
    return min(taken)
