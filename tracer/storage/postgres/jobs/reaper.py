"""The reaper finds recorders that died, so that their unfinished records are shown as abandoned.

Every server runs one. They share the work: if a server stops, the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from tracer.clock import Clock
from tracer.records.leases import LeaseTerms
from tracer.storage.postgres.connection.pool import Pool, store_errors
from tracer.storage.postgres.projects.periodic_job import PeriodicJob
from tracer.storage.postgres.write.leases import mark_recorders

LOOK_SECONDS = 5.0
"""The pause in seconds between two passes. It is shorter if leases are so short that the reaper
would be late."""


class Reaper(PeriodicJob):
    """Finds dead recorders periodically, in all projects."""

    trouble = "leases_not_looked_after"

    def __init__(
        self,
        pool: Pool,
        terms: LeaseTerms,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        """Set the database.

        Args:
            pool: Connections that see all projects.
            terms: How long leases last.
            on_written: Called with the runs that changed.
            clock: The time of leases; None: the database's clock.
        """
        super().__init__(min(LOOK_SECONDS, terms.lease.total_seconds() / 4))
        self._pool = pool
        self._terms = terms
        self._on_written = on_written
        self._clock = clock

    async def run_once(self) -> None:
        """Find the recorders that died or reported again, and mark them in their runs.

        Raises:
            StoreUnavailable: The store does not answer. Completed marks stay.
        """
        moment = self._clock and self._clock()
        with store_errors():
            async for changed in mark_recorders(self._pool, self._terms, moment):
                self._on_written(changed)
