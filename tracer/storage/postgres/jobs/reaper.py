"""The reaper finds recorders that died, so that their unfinished records are shown as abandoned.

Every server has one. They share the work, and it does not matter which of them is alive.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tracer.records.leases import LeaseTerms
from tracer.storage.postgres.projects.periodic_job import Looker

LOOK_SECONDS = 5.0
"""How often it looks; more often where leases are so short that it would be late."""


class LeaseKeeping(Protocol):
    """The side of a store that finds dead recorders."""

    async def now(self) -> datetime:
        """Return the time by the clock of leases.

        Raises:
            StoreUnavailable: The store does not answer.
        """

    async def look_after_leases(self, since: datetime) -> None:
        """Mark recorders as dead or alive in their runs, by their leases.

        `abandoned_at` is when the lease expired. This raises the revisions of the recorder's
        unfinished records and of their runs. Any number of callers may do it at once.

        Args:
            since: A lease counts from this moment on at least: no heartbeat could arrive before.

        Raises:
            StoreUnavailable: The store does not answer; what was done so far is done.
        """


class Reaper(Looker):
    """Looks after leases while inside. To be entered with `async with`."""

    trouble = "leases_not_looked_after"

    def __init__(self, leases: LeaseKeeping, terms: LeaseTerms) -> None:
        super().__init__(min(LOOK_SECONDS, terms.lease.total_seconds() / 4))
        self._leases = leases
        self._lease = terms.lease
        self._since = datetime.min
        self.looked_at: datetime | None = None
        """When it looked last, by the leases' clock; None: it could not yet."""

    async def look(self) -> None:
        """Look once.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        now = await self._leases.now()
        if self.looked_at is None or now - self.looked_at > self._lease:
            # It was away, or the store was: nobody was heard meanwhile.
            self._since = now
        await self._leases.look_after_leases(self._since)
        self.looked_at = now
