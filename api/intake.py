"""Intake: how much the requests that record may hold in memory together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tracer.errors import TooBusy

MAX_BYTES = 256 * 2**20
"""How much they may hold together."""

MAX_REQUESTS = 128
"""How many there may be at once: each waits for a connection of the store."""

PATIENCE_SECONDS = 30.0
"""How long a body may be waited for, besides the time that `SLOWEST_BYTES` gives it."""

SLOWEST_BYTES = 16 * 2**10
"""How many bytes of a body have to come in a second, beyond the patience."""

LARGE_BYTES = 2**20
"""Bodies from here on are decoded one after the other."""


class Intake:
    """The requests in hand. One of them always gets in, and the oldest always gets through."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_requests: int = MAX_REQUESTS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._patience_seconds = patience_seconds
        self._held: dict[Share, int] = {}
        self._total = 0
        self._turns = asyncio.Lock()

    @contextmanager
    def share(self, announced: int) -> Iterator[Share]:
        """Give a request its share, until it has been answered.

        Args:
            announced: How many bytes it says that it has; 0 where it says nothing.

        Raises:
            TooBusy: There is no room for it beside those that are in hand.
        """
        if self._held and len(self._held) >= self._max_requests:
            raise TooBusy()
        share = Share(self)
        try:
            self.hold(share, announced)
            yield share
        finally:
            self._total -= self._held.pop(share, 0)

    def hold(self, share: Share, size: int) -> None:
        """Let a request hold this much in all; less than it has changes nothing.

        Raises:
            TooBusy: There is no room for that, and others came before it.
        """
        held = self._held.get(share, 0)
        more = max(0, size - held)
        is_oldest = next(iter(self._held), share) is share
        if more and not is_oldest and self._total + more > self._max_bytes:
            raise TooBusy()
        self._held[share] = held + more
        self._total += more

    def patience(self, received: int) -> float:
        """Return for how many seconds in all a body may be waited for that has come so far.

        A client whose machine vanished says nothing of it: its room would be gone for ever.

        Args:
            received: How many bytes of it have come.
        """
        return self._patience_seconds + received / SLOWEST_BYTES

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait until no other large body is decoded, where this one is large.

        Python decodes one at a time in any case; at once they would only take up more memory.

        Args:
            size: How large the body is.
        """
        if size < LARGE_BYTES:
            yield
            return
        async with self._turns:
            yield


class Share:
    """What one request holds."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def hold(self, size: int) -> None:
        """Hold this many bytes in all. Raises `TooBusy` where there is no room for them."""
        self._intake.hold(self, size)
