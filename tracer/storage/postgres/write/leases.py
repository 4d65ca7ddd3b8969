"""Leases in Postgres: writers renew them, and the reaper finds expired ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncRawCursor

from tracer.clock import Clock
from tracer.records.events import Event
from tracer.records.leases import Lease, LeaseTerms
from tracer.storage.postgres.connection.citus import is_spread_by
from tracer.storage.postgres.connection.pool import (
    Pool,
    PoolConnection,
    SyncConnection,
    pooled_connection,
)
from tracer.storage.postgres.connection.project_session import Statement
from tracer.storage.postgres.write import lease_sql as sql

AT_ONCE = 100
"""The most runs that a transaction of the reaper locks."""


class PostgresLeases:
    """The part of a writer that renews recorders' leases."""

    def __init__(self, project_id: int, terms: LeaseTerms, clock: Clock | None = None) -> None:
        """Set the project.

        Args:
            project_id: The project of the recorders.
            terms: How long leases last.
            clock: The time of leases; None: the database's clock.
        """
        self._project_id = project_id
        self._terms = terms
        self._clock = clock

    async def renew(self, connection: PoolConnection, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease."""
        values = [[recorder_id], [None], [self._terms.lease]]
        (row,) = await _rows(connection, sql.RENEW, [self._project_id, self._moment(), *values])
        return Lease(*row)

    def heartbeats(self, events: Iterable[Event]) -> list[Statement]:
        """Return the statements that record events as heartbeats of their recorders.

        Execute them in the transaction that locked the runs, so that the last heartbeat of a
        recorder is never earlier than its last record. If an event names no recorder, the lease of
        its run is renewed.
        """
        latest: dict[UUID, datetime | None] = {}
        places: dict[tuple[UUID, UUID], timedelta] = {}
        for event in events:
            run_id = event.root_plan_id
            if event.recorder_id is None:
                latest[run_id] = None
                places[run_id, run_id] = self._terms.span_idle
            else:
                earlier = latest.get(event.recorder_id)
                latest[event.recorder_id] = event.at if earlier is None else max(earlier, event.at)
                places[event.recorder_id, run_id] = self._terms.lease
        lengths = {recorder_id: length for (recorder_id, _), length in places.items()}
        recorders, runs = zip(*places, strict=True)
        values = [[*latest], [*latest.values()], [lengths[each] for each in latest]]
        return [
            (sql.NOTE_RUNS, [self._project_id, [*recorders], [*runs]]),
            (sql.RENEW, [self._project_id, self._moment(), *values]),
        ]

    def _moment(self) -> datetime | None:
        return self._clock and self._clock()


def read_leases(connection: SyncConnection, project_id: int, run_id: UUID) -> list[Lease]:
    """Return the leases of the recorders that may have unfinished records in a run."""
    cursor = connection.execute(sql.LEASES_OF_RUN, {"project_id": project_id, "run": run_id})
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
        ((alive, expired),) = await _rows(connection, sql.COUNT_LEASES, [])
    return LeaseCounts(alive, expired)


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
        ((now,),) = await _rows(connection, sql.CHECK, [moment, terms.lease])
    for condition in (sql.IS_DEAD, sql.IS_ALIVE):
        changed: set[UUID] | None = set()
        while changed is not None:
            async with pooled_connection(pool) as connection, connection.transaction():
                changed = await _mark_some(connection, condition, now)
            if changed:
                yield changed
    async with pooled_connection(pool) as connection:
        await _execute(connection, sql.FORGET_LEASES, [now])


_Row = tuple[Any, ...]


async def _mark_some(connection: PoolConnection, condition: str, now: datetime) -> set[UUID] | None:
    """Mark recorders in some runs. Return the runs that changed; None if no run was found."""
    runs = await _taken_runs(connection, condition, now)
    if not runs:
        return None
    # Each statement has a new snapshot: the next ones see all that was written before these locks
    # were taken.
    marked = await _rows(connection, sql.MARKS[condition], [now, *_columns(runs)])
    if not marked:
        return set()
    changed = {
        place
        for statement in sql.RAISE.values()
        for place in await _rows(connection, statement, _columns(marked))
    }
    if places := list({(project_id, run_id) for project_id, _, run_id in changed}):
        await _execute(connection, sql.RAISE_RUNS, _columns(places))
    if condition == sql.IS_DEAD and (gone := [each for each in marked if each not in changed]):
        await _execute(connection, sql.FORGET_RUNS, _columns(gone))
    return {run_id for _, _, run_id in changed}


async def _taken_runs(connection: PoolConnection, condition: str, now: datetime) -> list[_Row]:
    """Lock and return runs with outdated marks. Runs that another transaction locked are skipped.

    A transaction on Citus locks one run, because it cannot lock runs on two shards.
    """
    values = [now, AT_ONCE]
    if not await is_spread_by(connection):
        return await _rows(connection, sql.take_runs(condition), values)
    for run in await _rows(connection, sql.find_runs(condition), values):
        if await _rows(connection, sql.LOCK_RUN, [*run]):
            return [run]
    return []


def _columns(rows: list[_Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _execute(connection: PoolConnection, statement: str, values: list[Any]) -> None:
    await AsyncRawCursor(connection).execute(statement, values)


async def _rows(connection: PoolConnection, statement: str, values: list[Any]) -> list[_Row]:
    cursor = AsyncRawCursor(connection)
    await cursor.execute(statement, values)
    return await cursor.fetchall()
