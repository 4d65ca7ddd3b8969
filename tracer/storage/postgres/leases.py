"""Leases of recorders, and what happens when they expire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncRawCursor

from tracer.clock import Clock
from tracer.records import MAX_DELAY, Kind, Lease, LeaseTerms
from tracer.records.events import Event
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres.citus import is_spread_by
from tracer.storage.postgres.pool import Pool, PoolConnection, SyncConnection, pooled_connection
from tracer.storage.postgres.run_tables import SETTLE_OPEN, is_unfinished, whose
from tracer.storage.postgres.session import ProjectPool, Statement, in_project
from tracer.storage.postgres.tables import ALWAYS, TABLES

# --- The SQL of leases, for raw cursors.
#
# A lease is valid while `seen_at + length` is in the future. Writers lock runs before leases. The
# reaper locks runs, skips rows that others have locked, and so cannot be part of a deadlock.

# The moment of an event, by the database's clock, is when it was recorded plus the least `lag`.
_SEEN = f"""greatest(stored.seen_at, excluded.seen_at
        - least(coalesce(excluded.lag - least(stored.lag, excluded.lag), '0'),
            interval '{MAX_DELAY.days} days'))"""

RENEW = f"""
WITH moment AS MATERIALIZED (SELECT coalesce($2::timestamptz, statement_timestamp()) AS now)
INSERT INTO recorder_lease AS stored (project_id, recorder_id, seen_at, length, lag)
SELECT $1, incoming.recorder_id, moment.now, incoming.length, moment.now - incoming.at
FROM moment, unnest($3::uuid[], $4::timestamptz[], $5::interval[])
    AS incoming (recorder_id, at, length)
ORDER BY incoming.recorder_id
ON CONFLICT (recorder_id, project_id) DO UPDATE SET
    seen_at = {_SEEN},
    length = excluded.length,
    lag = least(stored.lag, excluded.lag)
RETURNING recorder_id, seen_at, length"""
"""Renew the leases of the recorders $3 in the project $1, or create them, for the lengths $5.

$2 is the current time; null means the time of the database. $4 are the times of the recorders'
latest events, by the recorders' clocks; null for a heartbeat without an event.
"""

NOTE_RUNS = """
INSERT INTO recorder_run (project_id, recorder_id, root_plan_id)
SELECT run.project_id, incoming.recorder_id, run.root_plan_id
FROM unnest($2::uuid[], $3::uuid[]) AS incoming (recorder_id, root_plan_id)
JOIN run ON run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
WHERE run.deleted_at IS NULL AND run.root_plan_id = ANY($3::uuid[])
ORDER BY incoming.recorder_id, incoming.root_plan_id
ON CONFLICT (recorder_id, root_plan_id, project_id) DO NOTHING"""
"""Store that the recorders $2 wrote to the locked runs $3."""

LEASES_OF_RUN = """
SELECT recorder_id, seen_at, length FROM recorder_lease
WHERE project_id = %(project_id)s AND recorder_id = ANY(ARRAY(
    SELECT recorder_id FROM recorder_run
    WHERE root_plan_id = %(run)s AND project_id = %(project_id)s))
ORDER BY recorder_id"""

COUNT_LEASES = """
SELECT count(*) FILTER (WHERE seen_at + length > statement_timestamp()),
    count(*) FILTER (WHERE seen_at + length <= statement_timestamp())
FROM recorder_lease"""

# --- The reaper ----------------------------------------------------------------------------------

CHECK = """
UPDATE lease_check SET served_at = moment.now, served_since = CASE
    WHEN served_at + $2::interval >= moment.now THEN served_since ELSE moment.now END
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS moment
RETURNING served_at"""
"""Store that a server runs at the time $1, and return this time; null means the time of the
database. If no server ran for longer than $2, heartbeats may be missing: no lease expires before
its full length has passed since now."""

_LEASES = """lease AS (
    SELECT project_id, recorder_id, seen_at + length AS ends_at,
        greatest(seen_at, (SELECT served_since FROM lease_check)) + length AS dead_at
    FROM recorder_lease
)"""
"""The leases, in a WITH: Citus cannot compute their ends in an update of runs."""

_OF_LEASE = "part.recorder_id = lease.recorder_id AND part.project_id = lease.project_id"

IS_DEAD = "lease.dead_at <= $1 AND part.abandoned_at IS DISTINCT FROM lease.ends_at"
"""The condition for marking a recorder as dead in a run, at the time $1."""

IS_ALIVE = "lease.ends_at > $1 AND part.abandoned_at IS NOT NULL"
"""The condition for removing such a mark."""


def find_runs(condition: str) -> str:
    """Return the query of at most $2 runs in which a recorder's mark is outdated."""
    return f"""
WITH {_LEASES}
SELECT part.project_id, part.root_plan_id
FROM lease JOIN recorder_run AS part ON {_OF_LEASE}
JOIN run ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
WHERE {condition} AND run.deleted_at IS NULL LIMIT $2"""


def take_runs(condition: str) -> str:
    """Return the same query, which locks the runs and skips runs that are locked."""
    return f"{find_runs(condition)} FOR NO KEY UPDATE OF run SKIP LOCKED"


def _mark(abandoned_at: str, condition: str) -> str:
    return f"""
WITH {_LEASES}
UPDATE recorder_run AS part SET abandoned_at = {abandoned_at}
FROM lease, unnest($2::integer[], $3::uuid[]) AS taken (project_id, root_plan_id)
WHERE part.project_id = taken.project_id AND part.root_plan_id = taken.root_plan_id
    AND {_OF_LEASE} AND {condition}
RETURNING part.project_id, part.recorder_id, part.root_plan_id"""


MARKS = {
    IS_DEAD: _mark("lease.ends_at", IS_DEAD),
    IS_ALIVE: _mark("NULL", IS_ALIVE),
}
"""Set or remove the marks of recorders in locked runs: the projects $2 and the runs $3."""

_INCOMING = """unnest($1::integer[], $2::uuid[], $3::uuid[])
    AS incoming (project_id, recorder_id, root_plan_id)"""


def _raising(kind: Kind) -> str:
    return f"""
    UPDATE {TABLES[kind]} AS stored SET revision = run.revision + 1
    FROM {_INCOMING}
    JOIN run ON run.project_id = incoming.project_id AND run.root_plan_id = incoming.root_plan_id
    WHERE stored.project_id = incoming.project_id AND stored.root_plan_id = incoming.root_plan_id
        AND stored.{ALWAYS} AND {is_unfinished("stored")}
        AND {whose("stored", "run")} = incoming.recorder_id
    RETURNING stored.project_id, incoming.recorder_id, stored.root_plan_id"""


RAISE = {kind: _raising(kind) for kind in RECORDS}
"""Raise the revisions of the unfinished records of recorders in their runs. Execute these before
`RAISE_RUNS`, which raises the revisions of the runs."""

LOCK_RUN = """
SELECT root_plan_id FROM run
WHERE project_id = $1 AND root_plan_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE SKIP LOCKED"""

RAISE_RUNS = """
UPDATE run SET revision = run.revision + 1, changed_at = statement_timestamp()
FROM unnest($1::integer[], $2::uuid[]) AS incoming (project_id, root_plan_id)
WHERE run.project_id = incoming.project_id AND run.root_plan_id = incoming.root_plan_id"""

_DEAD_PART = """FROM recorder_run AS part WHERE part.project_id = run.project_id
        AND part.root_plan_id = run.root_plan_id AND part.abandoned_at IS NOT NULL"""

_IS_LEFT = f"""(greatest(run.open_at, (SELECT served_since FROM lease_check)) + $2::interval <= $1
    OR EXISTS (SELECT {_DEAD_PART}))"""

FIND_LEFT = f"""
SELECT project_id, root_plan_id FROM run
WHERE open_at IS NOT NULL AND deleted_at IS NULL AND (left_open_at IS NOT NULL) <> {_IS_LEFT}
LIMIT $3"""
"""Find at most $3 runs with an open sub-plan below an ended root plan whose mark is outdated. A run
counts as left if nothing was written for $2 at the time $1, or if a recorder of it is dead."""

READ_LEFT = f"""
SELECT CASE WHEN left_open_at IS NULL
    THEN coalesce((SELECT min(part.abandoned_at) {_DEAD_PART}), open_at + $2::interval) END
FROM run WHERE project_id = $3 AND root_plan_id = $4 AND open_at IS NOT NULL
    AND deleted_at IS NULL AND (left_open_at IS NOT NULL) <> {_IS_LEFT}"""
"""Return the new mark of a run whose mark is outdated. Citus computes none in an UPDATE."""

MARK_LEFT = """
UPDATE run SET left_open_at = $3, revision = revision + 1, changed_at = statement_timestamp()
WHERE project_id = $1 AND root_plan_id = $2"""

RAISE_OPEN = {
    kind: f"""
    UPDATE {TABLES[kind]} AS stored SET revision = run.revision FROM run
    WHERE run.project_id = $1 AND run.root_plan_id = $2 AND stored.project_id = $1
        AND stored.root_plan_id = $2 AND stored.{ALWAYS} AND {is_unfinished("stored")}"""
    for kind in RECORDS
}
"""Raise the revisions of the unfinished records of a run to that of the run."""

FORGET_RUNS = f"""
DELETE FROM recorder_run AS part USING {_INCOMING}
WHERE part.recorder_id = incoming.recorder_id
    AND part.root_plan_id = incoming.root_plan_id AND part.project_id = incoming.project_id"""
"""Delete the rows of `recorder_run` whose recorders are dead and left no unfinished records in the
run."""

FIND_EXPIRED = f"WITH {_LEASES} SELECT recorder_id FROM lease WHERE dead_at <= $1"

FIND_IN_RUNS = "SELECT DISTINCT recorder_id FROM recorder_run WHERE recorder_id = ANY($1::uuid[])"

FORGET_LEASES = f"""
WITH {_LEASES}
DELETE FROM recorder_lease AS stored USING (
    SELECT expired.recorder_id, expired.project_id FROM recorder_lease AS expired
    JOIN lease ON lease.recorder_id = expired.recorder_id AND lease.project_id = expired.project_id
    WHERE expired.recorder_id = ANY($2::uuid[]) AND lease.dead_at <= $1
    FOR UPDATE OF expired SKIP LOCKED
) AS gone
WHERE stored.recorder_id = gone.recorder_id AND stored.project_id = gone.project_id"""
"""Delete the leases of the recorders $2 that are still expired."""


# --- Leases in Postgres: writers renew them, and the reaper finds expired ones.

AT_ONCE = 100
"""The most runs that a transaction of the reaper locks."""


class PostgresLeases:
    """The part of a writer that renews recorders' leases."""

    def __init__(self, project: ProjectPool, terms: LeaseTerms, clock: Clock | None = None) -> None:
        """Connect to the database.

        Args:
            project: The project of the recorders, with its connections.
            terms: How long leases last.
            clock: The time of leases; None: the database's clock.
        """
        self._project = project
        self._project_id = project.project_id
        self._terms = terms
        self._clock = clock

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease."""
        lengths = [self._terms.lease]
        values = [self._project_id, self._moment(), [recorder_id], [None], lengths]
        async with in_project(self._project) as connection:
            (row,) = await _fetch_all(connection, RENEW, values)
        return Lease(*row)

    def heartbeats(self, events: Iterable[Event]) -> list[Statement]:
        """Return the statements that record events as heartbeats of their recorders.

        Execute them in the transaction that locked the runs, so that the last heartbeat of a
        recorder is never earlier than its last record. If an event names no recorder, the lease of
        its run is renewed.
        """
        latest: dict[UUID, datetime | None] = {}
        leases: dict[tuple[UUID, UUID], timedelta] = {}
        for event in events:
            run_id = event.root_plan_id
            if event.recorder_id is None:
                latest[run_id] = None
                leases[run_id, run_id] = self._terms.span_idle
            else:
                earlier = latest.get(event.recorder_id)
                latest[event.recorder_id] = event.at if earlier is None else max(earlier, event.at)
                leases[event.recorder_id, run_id] = self._terms.lease
        lengths = {recorder_id: length for (recorder_id, _), length in leases.items()}
        recorders, runs = zip(*leases, strict=True)
        values = [[*latest], [*latest.values()], [lengths[each] for each in latest]]
        return [
            (NOTE_RUNS, [self._project_id, [*recorders], [*runs]]),
            (RENEW, [self._project_id, self._moment(), *values]),
        ]

    def _moment(self) -> datetime | None:
        return self._clock and self._clock()


def read_leases(connection: SyncConnection, project_id: int, run_id: UUID) -> list[Lease]:
    """Return the leases of the recorders that may have unfinished records in a run."""
    cursor = connection.execute(LEASES_OF_RUN, {"project_id": project_id, "run": run_id})
    return [Lease(*row) for row in cursor.fetchall()]


@dataclass(frozen=True)
class LeaseCounts:
    """The numbers of leases."""

    alive: int
    expired: int
    """The leases of recorders that left unfinished records."""


async def count_leases(pool: Pool) -> LeaseCounts:
    """Count the leases of all projects."""
    async with pooled_connection(pool) as connection:
        ((alive, expired),) = await _fetch_all(connection, COUNT_LEASES, [])
    return LeaseCounts(alive, expired)


async def _check(
    connection: PoolConnection, terms: LeaseTerms, moment: datetime | None
) -> datetime:
    """Store that a server runs now, and return the time."""
    [(now,)] = await _fetch_all(connection, CHECK, [moment, terms.lease / 2])
    assert isinstance(now, datetime)
    return now


async def mark_recorders(
    pool: Pool, terms: LeaseTerms, moment: datetime | None = None
) -> AsyncIterator[set[UUID]]:
    """Mark recorders as dead if their leases expired, or as alive if they reported again.

    `abandoned_at` becomes the time when the lease expired. The revisions of the recorder's
    unfinished records and of their runs are raised. Any number of callers may do this at once.

    Args:
        pool: Connections that see all projects.
        terms: How long leases last.
        moment: The current time; None: the time of the database.

    Yields:
        The runs that changed, after each transaction.
    """
    async with pooled_connection(pool) as connection:
        now = await _check(connection, terms, moment)
    for condition in (IS_DEAD, IS_ALIVE):
        changed: set[UUID] | None = set()
        while changed is not None:
            async with pooled_connection(pool) as connection, connection.transaction():
                changed = await _mark_some(connection, condition, now)
            if changed:
                yield changed
    async with pooled_connection(pool) as connection:
        # In three statements: on Citus the leases are on the coordinator, and the runs are not.
        expired = {each for (each,) in await _fetch_all(connection, FIND_EXPIRED, [now])}
        if expired:
            found = await _fetch_all(connection, FIND_IN_RUNS, [list(expired)])
            gone = expired.difference(recorder_id for (recorder_id,) in found)
            await _execute(connection, FORGET_LEASES, [now, list(gone)])


async def mark_left_runs(
    pool: Pool, terms: LeaseTerms, moment: datetime | None = None
) -> AsyncIterator[set[UUID]]:
    """Mark runs as left if nothing is recorded below their ended root plans any more.

    Their recorders may be alive. The mark is removed when a record arrives.

    Args:
        pool: Connections that see all projects.
        terms: How long leases last.
        moment: The current time; None: the time of the database.

    Yields:
        The runs that changed, after each transaction.
    """
    async with pooled_connection(pool) as connection:
        now = await _check(connection, terms, moment)
        runs = await _fetch_all(connection, FIND_LEFT, [now, terms.span_idle, AT_ONCE])
    for project_id, run_id in runs:
        async with pooled_connection(pool) as connection, connection.transaction():
            if not await _fetch_all(connection, LOCK_RUN, [project_id, run_id]):
                continue
            values = [now, terms.span_idle, project_id, run_id]
            found = await _fetch_all(connection, READ_LEFT, values)
            if not found:
                continue
            await _execute(connection, MARK_LEFT, [project_id, run_id, *found[0]])
            await _execute(connection, SETTLE_OPEN, [project_id, None, [run_id]])
            for statement in RAISE_OPEN.values():
                await _execute(connection, statement, [project_id, run_id])
        yield {run_id}


_Row = tuple[Any, ...]


async def _mark_some(connection: PoolConnection, condition: str, now: datetime) -> set[UUID] | None:
    """Mark recorders in some runs. Return the runs that changed; None if no run was found."""
    runs = await _taken_runs(connection, condition, now)
    if not runs:
        return None
    # Each statement has a new snapshot: the next ones see all that was written before these locks
    # were taken.
    marked = await _fetch_all(connection, MARKS[condition], [now, *_columns(runs)])
    if not marked:
        return set()
    changed = {
        row
        for statement in RAISE.values()
        for row in await _fetch_all(connection, statement, _columns(marked))
    }
    if changed_runs := list({(project_id, run_id) for project_id, _, run_id in changed}):
        await _execute(connection, RAISE_RUNS, _columns(changed_runs))
    if condition == IS_DEAD and (gone := [each for each in marked if each not in changed]):
        await _execute(connection, FORGET_RUNS, _columns(gone))
    return {run_id for _, _, run_id in changed}


async def _taken_runs(connection: PoolConnection, condition: str, now: datetime) -> list[_Row]:
    """Lock and return runs with outdated marks. Runs that another transaction locked are skipped.

    A transaction on Citus locks one run, because it cannot lock runs on two shards.
    """
    values = [now, AT_ONCE]
    if not await is_spread_by(connection):
        return await _fetch_all(connection, take_runs(condition), values)
    for run in await _fetch_all(connection, find_runs(condition), values):
        if await _fetch_all(connection, LOCK_RUN, [*run]):
            return [run]
    return []


def _columns(rows: list[_Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _execute(connection: PoolConnection, statement: str, values: list[Any]) -> None:
    await AsyncRawCursor(connection).execute(statement, values)


async def _fetch_all(connection: PoolConnection, statement: str, values: list[Any]) -> list[_Row]:
    cursor = AsyncRawCursor(connection)
    await cursor.execute(statement, values)
    return await cursor.fetchall()
