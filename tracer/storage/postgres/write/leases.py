"""Leases in Postgres: writers renew them, and the reaper finds expired ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
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
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.connection.project_session import Statement
from tracer.storage.postgres.write import lease_sql as sql

AT_ONCE = 100
"""The most leases, and the most runs, that a transaction of the reaper locks."""


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


async def read_leases(connection: PoolConnection, project_id: int, run_id: UUID) -> list[Lease]:
    """Return the leases of the recorders that may have unfinished records in a run."""
    return [Lease(*row) for row in await _rows(connection, sql.LEASES_OF_RUN, [project_id, run_id])]


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


class PostgresReaper:
    """`LeaseKeeping` of the reaper over a pool of connections, for all projects."""

    def __init__(
        self,
        pool: Pool,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        """Set the database.

        Args:
            pool: Connections that see all projects.
            on_written: Called with the runs that changed.
            clock: The time of leases; None: the database's clock.
        """
        self._pool = pool
        self._on_written = on_written
        self._clock = clock
        self.abandoned = 0
        """In how many cases a recorder was marked as dead in a run, since the process began."""
        self.cleared = 0
        """In how many cases such a mark was removed because the recorder reported again."""

    async def now(self) -> datetime:
        """Return the time of the clock that decides when leases expire."""
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                ((now,),) = await _rows(connection, sql.NOW, [self._moment()])
        assert isinstance(now, datetime)
        return now

    async def expire_leases(self, since: datetime) -> None:
        """Mark recorders as dead if their leases expired, or as alive if they reported again."""
        with store_errors():
            while await self._do_some(since):
                pass

    async def _do_some(self, since: datetime) -> bool:
        """Check some due leases in one transaction. Return whether anything was changed."""
        async with pooled_connection(self._pool) as connection, connection.transaction():
            leases = await _rows(connection, sql.TAKE_LEASES, [self._moment(), since, AT_ONCE])
            if not leases:
                return False
            # Each statement has a new snapshot: the next ones see all that was written before these
            # locks were taken.
            verdicts = _columns([lease[:3] for lease in leases])
            runs = await _taken_runs(connection, verdicts)
            changed = await _set_abandoned(connection, runs) if runs else set()
            is_settled = len(runs) < AT_ONCE and await _settle(connection, leases, verdicts)
        marked = sum(run[3] is not None for run in runs if run[:3] in changed)
        self.abandoned += marked
        self.cleared += len(changed) - marked
        if changed:
            self._on_written({run_id for _, _, run_id in changed})
        return bool(runs) or is_settled

    def _moment(self) -> datetime | None:
        return self._clock and self._clock()


_Row = tuple[Any, ...]


async def _taken_runs(connection: PoolConnection, verdicts: list[list[Any]]) -> list[_Row]:
    """Lock and return runs that do not yet show a recorder as dead, or as alive again.

    Runs that another transaction has locked are skipped.
    """
    values = [*verdicts, AT_ONCE]
    if not await is_spread_by(connection):
        return await _rows(connection, sql.TAKE_RUNS, values)
    candidates = await _rows(connection, sql.FIND_RUNS, values)
    for place in dict.fromkeys((run[0], run[2]) for run in candidates):
        # A transaction cannot lock runs on two shards.
        if await _rows(connection, sql.LOCK_RUN, [*place]):
            return [run for run in candidates if (run[0], run[2]) == place]
    return []


async def _set_abandoned(connection: PoolConnection, runs: list[_Row]) -> set[_Row]:
    """Store in locked runs when their recorders died, or that these recorders are alive again.

    Return the pairs of recorder and run whose records changed.
    """
    changed = {
        place
        for statement in sql.RAISE.values()
        for place in await _rows(connection, statement, _columns(runs))
    }
    gone = [run[:3] for run in runs if run[3] is not None and run[:3] not in changed]
    if places := list(dict.fromkeys((run[0], run[2]) for run in changed)):
        await _execute(connection, sql.RAISE_RUNS, _columns(places))
    await _execute(connection, sql.SET_ABANDONED, _columns(runs))
    if gone:
        await _execute(connection, sql.FORGET_RUNS, _columns(gone))
    return changed


async def _settle(
    connection: PoolConnection, leases: list[_Row], verdicts: list[list[Any]]
) -> bool:
    """Set the next due time of leases whose runs are up to date.

    Expired leases without runs are deleted.

    Returns:
        Whether any lease was changed or deleted.
    """
    with_runs: set[_Row] = set()
    waiting: set[_Row] = set()
    for *key, is_left in await _rows(connection, sql.FIND_LEFT, verdicts):
        with_runs.add(tuple(key))
        if is_left:
            waiting.add(tuple(key))
    gone: list[_Row] = []
    settled: list[_Row] = []
    for *key, expired_at, due_at in leases:
        if expired_at is not None and tuple(key) not in with_runs:
            gone.append(tuple(key))
        elif tuple(key) not in waiting:
            settled.append((*key, due_at))
    if gone:
        await _execute(connection, sql.FORGET_LEASES, _columns(gone))
    if settled:
        await _execute(connection, sql.SET_DUE, _columns(settled))
    return bool(gone or settled)


def _columns(rows: list[_Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _execute(connection: PoolConnection, statement: str, values: list[Any]) -> None:
    await AsyncRawCursor(connection).execute(statement, values)


async def _rows(connection: PoolConnection, statement: str, values: list[Any]) -> list[_Row]:
    cursor = AsyncRawCursor(connection)
    await cursor.execute(statement, values)
    return await cursor.fetchall()
