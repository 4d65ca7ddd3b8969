"""Stores whose leases use a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tests.contract.moments import START
from tests.contract.stores import Projecting, Store, projecting, serving
from tests.projecting import DatabaseProjection
from tests.reaping import forget_checks
from tracer.records import LeaseTerms
from tracer.storage.http import HttpWriter
from tracer.storage.postgres import Pool, ProjectPool, WriterOptions, postgres_writer
from tracer.storage.postgres.jobs import Reaper
from tracer.storage.postgres.reader import PostgresReader

TERMS = LeaseTerms(timedelta(seconds=60), timedelta(seconds=900))


class HandClock:
    """A clock that only moves when a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    @property
    def seconds(self) -> int:
        """How far it was moved: what `Moments` take as `at`."""
        return int((self.now - START).total_seconds())

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass(frozen=True)
class Living(Store):
    """A store with the clock of its leases, and a reaper that has looked long enough to judge."""

    clock: HandClock
    reaper: Reaper

    async def pass_time(self, seconds: float) -> None:
        """Let time go by as it does while somebody looks, and look."""
        for _ in range(int(seconds // 30)):
            self.clock.move(30)
            await self.reaper.run_once()
        self.clock.move(seconds % 30)
        await self.reaper.run_once()


async def postgres_living(
    pool: Pool, project_id: int = 1, when: Projecting = Projecting.AFTER_WRITES
) -> Living:
    """Return a store in an empty database."""
    hand = HandClock()
    project = ProjectPool(pool, project_id)
    writer = postgres_writer(project, WriterOptions(clock=hand, terms=TERMS, lease_clock=hand))
    await forget_checks(pool)
    reaper = Reaper(pool, TERMS, clock=hand)
    await reaper.run_once()
    projection = DatabaseProjection(pool.kwargs)
    store = Living(writer, PostgresReader(project), projection, hand, reaper)
    return projecting(store, when)


async def http_living(pool: Pool) -> Living:
    """Return a store in an empty database that is written to over HTTP."""
    behind = await postgres_living(pool, when=Projecting.ON_DEMAND)
    writer = HttpWriter("http://tracer", transport=serving(behind))
    return projecting(replace(behind, writer=writer), Projecting.AFTER_WRITES)
