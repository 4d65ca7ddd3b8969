"""The reaper finds recorders that died, so that their unfinished records are shown as abandoned.

Every server runs one. They share the work: if a server stops, the others continue.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tracer.records.leases import LeaseTerms
from tracer.storage.postgres.projects.periodic_job import PeriodicJob

LOOK_SECONDS = 5.0
"""The pause in seconds between two passes. It is shorter if leases are so short that the reaper
would be late."""


class LeaseKeeping(Protocol):
    """The part of a store that finds dead recorders."""

    async def now(self) -> datetime:
        """Return the time by the clock of leases.

        Raises:
            StoreUnavailable: The store does not answer.
        """

    async def expire_leases(self, since: datetime) -> None:
        """Mark recorders as dead if their leases expired, or as alive if they reported again.

        `abandoned_at` becomes the time when the lease expired. The revisions of the recorder's
        unfinished records and of their runs are raised. Any number of callers may do this at once.

        Args:
            since: The time since which heartbeats could arrive without interruption. No lease
                expires before its full length has passed since this time.

        Raises:
            StoreUnavailable: The store does not answer. Completed marks stay.
        """


class Reaper(PeriodicJob):
    """Finds dead recorders periodically."""

    trouble = "leases_not_looked_after"

    def __init__(self, leases: LeaseKeeping, terms: LeaseTerms) -> None:
        super().__init__(min(LOOK_SECONDS, terms.lease.total_seconds() / 4))
        self._leases = leases
        self._lease = terms.lease
        self._since = datetime.min
        self.looked_at: datetime | None = None
        """The time of the reaper's last pass, by the clock of leases; None before the first
        pass."""

    async def run_once(self) -> None:
        """Find the recorders that died or reported again, and mark them in their runs.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        now = await self._leases.now()
        if self.looked_at is None or now - self.looked_at > self._lease:
            # The reaper or the store was unavailable, so heartbeats may be missing.
            self._since = now
        await self._leases.expire_leases(self._since)
        self.looked_at = now
