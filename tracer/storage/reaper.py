"""The reaper: sees to it that what the dead left open is shown as abandoned.

Every server has one. They share the work, and it does not matter which of them is alive.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from tracer.leases import LeaseTerms
from tracer.logs import get_logger

LOOK_SECONDS = 5.0
"""How often it looks; more often where leases are so short that it would be late."""

log = get_logger(__name__)


class LeaseKeeping(Protocol):
    """The side of a store that knows who lives."""

    async def now(self) -> datetime:
        """Return what time it is by the clock that leases go by.

        Raises:
            StoreUnavailable: The store does not answer.
        """

    async def look_after_leases(self, since: datetime) -> None:
        """Mark what recorders left open whose leases ran out, and clear what of others is marked.

        What is marked has the moment at which the lease ran out as its `abandoned_at`. Of each run
        that changes the revision grows. Any number of callers may do this at once.

        Args:
            since: A lease counts from this moment on at least: nobody could be heard before.

        Raises:
            StoreUnavailable: The store does not answer; what was done so far is done.
        """


class Reaper:
    """Looks after leases while inside. To be entered with `async with`."""

    def __init__(self, leases: LeaseKeeping, terms: LeaseTerms) -> None:
        self._leases = leases
        self._lease = terms.lease
        self._pause = min(LOOK_SECONDS, terms.lease.total_seconds() / 4)
        self._since = datetime.min
        self._looking: asyncio.Task[None] | None = None
        self.looked_at: datetime | None = None
        """When it looked last, by the leases' clock; None: it could not yet."""
        self.failures = 0
        """How often it could not."""

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._keep_looking(), name="tracer-reaper")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

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

    async def _keep_looking(self) -> None:
        is_answered = True
        while True:
            try:
                await self.look()
            except Exception as error:  # whatever it is, it looks again
                if is_answered:
                    log.warning("leases_not_looked_after", error=type(error).__name__)
                is_answered = False
                self.failures += 1
            else:
                is_answered = True
            await asyncio.sleep(self._pause)
