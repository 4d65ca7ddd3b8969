"""Leases in Postgres: signs of life noted by whoever writes, and the reaper that reads them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncRawCursor

from tracer.clock import Clock, utc_now
from tracer.leases import Lease, LeaseTerms
from tracer.records import RECORDS
from tracer.storage import citus_leases
from tracer.storage.citus import is_spread_by
from tracer.storage.engine import Pool, PoolConnection, borrowed, store_errors
from tracer.storage.lease_statements import (
    COUNT_LEASES,
    FORGET_LEASES,
    FORGET_PARTS,
    LEASES_OF_RUN,
    MARK,
    NOTE_PARTS,
    NOTE_RUNS,
    NOTE_SIGNS,
    NOW,
    RAISE_RUNS,
    RENEW,
    SETTLE,
    SETTLE_SOME,
    TAKE_PARTS,
)
from tracer.storage.project_pool import Row
from tracer.storage.signs_of_life import Part, Signs

PARTS_AT_ONCE = 100
"""How many runs a reaper holds at once."""


class PostgresLeases:
    """The part of a writer that keeps recorders' leases."""

    def __init__(self, project_id: int, terms: LeaseTerms, clock: Clock | None = None) -> None:
        """Begin with nothing noted.

        Args:
            project_id: Whose leases.
            terms: How long they last.
            clock: What they go by; None: the database's own clock.
        """
        self._project_id = project_id
        self._terms = terms
        self._clock = clock
        self._noted: set[Part] = set()
        self._noted_since = datetime.min

    async def renew(self, connection: PoolConnection, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease; see `TraceWriter.renew`."""
        cursor = AsyncRawCursor(connection)
        given = [[recorder_id], [None], [self._terms.lease]]
        await cursor.execute(RENEW, [self._project_id, self._moment(), *given])
        (row,) = await cursor.fetchall()
        return Lease(*row)

    def new(self, signs: Signs) -> Signs:
        """Return the signs of life that were not noted a moment ago."""
        now = (self._clock or utc_now)().replace(tzinfo=None)
        if not self._noted_since <= now < self._noted_since + self._terms.pause:
            self._noted.clear()
            self._noted_since = now
        return {part: at for part, at in signs.items() if part not in self._noted}

    def noting(self, signs: Signs) -> list[tuple[str, list[Any]]]:
        """Return what notes signs of life in the transaction that locked their runs.

        The last statement returns the recorders that `remember` wants to know.
        """
        latest: dict[UUID, datetime | None] = {}
        for (recorder_id, _), at in signs.items():
            known = latest.get(recorder_id)
            latest[recorder_id] = at if known is None or at is None else max(known, at)
        runs = {run_id for _, run_id in signs}
        lengths = [
            self._terms.silence if recorder_id in runs else self._terms.lease
            for recorder_id in latest
        ]
        recorders, run_ids = zip(*signs, strict=True)
        moment = self._moment()
        given = [self._project_id, moment, [*latest], [*latest.values()], lengths]
        return [
            (NOTE_RUNS, [self._project_id, [*recorders], [*run_ids]]),
            (NOTE_SIGNS, [*given, self._terms.pause]),
        ]

    def remember(self, signs: Signs, answer: Iterable[Row]) -> None:
        """Take note, after the commit, that signs need not be noted again for a moment.

        Args:
            signs: What was noted.
            answer: What the last of the `noting` statements returned: the recorders whose leases do
                not run out meanwhile.
        """
        lasting = {recorder_id for (recorder_id,) in answer}
        self._noted.update(part for part in signs if part[0] in lasting)

    def _moment(self) -> datetime | None:
        return self._clock and self._clock()


async def read_leases(connection: PoolConnection, project_id: int, run_id: UUID) -> list[Lease]:
    """Return the leases of those who left something open in a run, or may have."""
    cursor = AsyncRawCursor(connection)
    await cursor.execute(LEASES_OF_RUN, [project_id, run_id])
    return [Lease(*row) for row in await cursor.fetchall()]


@dataclass(frozen=True)
class LeaseCounts:
    """How many leases there are."""

    alive: int
    expired: int
    """Those whose recorders left something open, and are shown as dead."""


async def count_leases(pool: Pool) -> LeaseCounts:
    """Count the leases of all projects."""
    async with borrowed(pool) as connection:
        ((alive, expired),) = await _rows(connection, COUNT_LEASES, [])
    return LeaseCounts(alive, expired)


class PostgresReaper:
    """`tracer.storage.reaper.LeaseKeeping` over a pool of connections, for all projects."""

    def __init__(
        self,
        pool: Pool,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        """Connect to the database.

        Args:
            pool: Its connections, which see all projects.
            on_written: Is told which runs changed.
            clock: What leases go by; None: the database's own clock.
        """
        self._pool = pool
        self._on_written = on_written
        self._clock = clock
        self.abandoned = 0
        """What recorders left open in a run and was marked, since the process began."""
        self.cleared = 0
        """The same that was cleared, since they came back."""

    async def now(self) -> datetime:
        """Return what time it is; see `LeaseKeeping.now`."""
        with store_errors():
            async with borrowed(self._pool) as connection:
                ((now,),) = await _rows(connection, NOW, [self._moment()])
        assert isinstance(now, datetime)
        return now

    async def look_after_leases(self, since: datetime) -> None:
        """Judge the dead and clear who came back; see `LeaseKeeping.look_after_leases`."""
        with store_errors():
            did_some = False
            while await self._do_some(since):
                did_some = True
            async with borrowed(self._pool) as connection:
                if await self._settle(connection, since) or did_some:
                    await forget_leases(connection)

    async def _do_some(self, since: datetime) -> bool:
        """Look after some parts of runs, and return whether there were any."""
        async with borrowed(self._pool) as connection, connection.transaction():
            given: list[Any] = [self._moment(), since, PARTS_AT_ONCE]
            if await is_spread_by(connection):
                parts = await citus_leases.taken_parts(connection, *given)
            else:
                parts = await _rows(connection, TAKE_PARTS, given)
            if not parts:
                return False
            columns = [list(column) for column in zip(*parts, strict=True)]
            changed = {
                tuple(place)
                for kind in RECORDS
                for place in await _rows(connection, MARK[kind], columns)
            }
            is_changed = [tuple(part[:3]) in changed for part in parts]
            if changed:
                rows = [part for part, is_one in zip(parts, is_changed, strict=True) if is_one]
                touched = [list(column) for column in zip(*rows, strict=True)]
                await AsyncRawCursor(connection).execute(RAISE_RUNS, touched)
            await AsyncRawCursor(connection).execute(NOTE_PARTS, [*columns, is_changed])
            await AsyncRawCursor(connection).execute(FORGET_PARTS, columns)
            recorders = list({recorder_id for _, _, recorder_id, _ in parts})
            await self._settle(connection, since, recorders)
        marked = sum(part[3] is not None for part in parts if tuple(part[:3]) in changed)
        self.abandoned += marked
        self.cleared += len(changed) - marked
        if changed:
            self._on_written({run_id for _, run_id, _ in changed})
        return True

    async def _settle(
        self, connection: PoolConnection, since: datetime, recorders: list[UUID] | None = None
    ) -> int:
        """Say of due leases when to look after them again, and return of how many."""
        if await is_spread_by(connection):
            async with connection.transaction():
                return await citus_leases.settle(connection, self._moment(), since, recorders)
        cursor = AsyncRawCursor(connection)
        given: list[Any] = [self._moment(), since]
        if recorders is None:
            await cursor.execute(SETTLE, given)
        else:
            await cursor.execute(SETTLE_SOME, [*given, recorders])
        return cursor.rowcount

    def _moment(self) -> datetime | None:
        return self._clock and self._clock()


async def forget_leases(connection: PoolConnection) -> None:
    """Delete settled leases that left nothing abandoned."""
    if await is_spread_by(connection):
        async with connection.transaction():
            await citus_leases.forget_leases(connection)
    else:
        await connection.execute(FORGET_LEASES)


async def _rows(
    connection: PoolConnection, statement: str, given: list[Any]
) -> list[tuple[Any, ...]]:
    cursor = AsyncRawCursor(connection)
    await cursor.execute(statement, given)
    return await cursor.fetchall()
