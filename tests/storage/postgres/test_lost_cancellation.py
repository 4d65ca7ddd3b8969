"""A periodic job stops even if one of its cancellations is lost."""

from __future__ import annotations

import asyncio

from tracer.storage.postgres.projects import PeriodicJob


class Deaf(PeriodicJob):
    """Loses the first cancellation, as `asyncio.wait_for` of Python 3.11 may do."""

    trouble = "not_looked"

    def __init__(self) -> None:
        super().__init__(pause=3600)
        self.looks = asyncio.Event()

    async def run_once(self) -> None:
        self.looks.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return


async def test_job_stops_even_if_its_cancellation_is_lost() -> None:
    async with asyncio.timeout(60), Deaf() as job:
        await job.looks.wait()
