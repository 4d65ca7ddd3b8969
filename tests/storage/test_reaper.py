"""The reaper, which marks runs as abandoned when their leases expire."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tracer.clock import stepping_clock
from tracer.errors import StoreUnavailable
from tracer.records.leases import DEFAULT_TERMS
from tracer.storage.postgres.jobs.reaper import Reaper

pytestmark = pytest.mark.thorough

START = datetime.fromisoformat("2026-01-01T12:00:00+00:00")


class Away:
    """Leases whose store goes away while they are looked after for the first time."""

    def __init__(self) -> None:
        self._clock = stepping_clock(START, timedelta(seconds=1))
        self.since: list[datetime] = []

    async def now(self) -> datetime:
        return self._clock()

    async def expire_leases(self, since: datetime) -> None:
        self.since.append(since)
        if len(self.since) == 1:
            raise StoreUnavailable()


async def test_lease_expiry_is_counted_from_the_first_successful_reaper_run() -> None:
    away = Away()
    reaper = Reaper(away, DEFAULT_TERMS)
    with pytest.raises(StoreUnavailable):
        await reaper.run_once()

    await reaper.run_once()
    await reaper.run_once()

    first, second, third = away.since
    assert first < second == third
    assert reaper.looked_at is not None
    assert reaper.looked_at > second
