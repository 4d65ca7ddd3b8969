"""Shares: how much each key may ask of one server process, as token buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from tracer.errors import TooFast

BURST_SECONDS = 5.0
"""How much may be saved up: what comes in so many seconds."""

MOST_CALLERS = 10_000


class Bucket:
    """What one caller has left. It may be overdrawn once, and is then waited for."""

    def __init__(self, per_second: float, seconds: Callable[[], float]) -> None:
        self._per_second = per_second
        self._seconds = seconds
        self._left = per_second * BURST_SECONDS
        self._since = seconds()

    def wait(self) -> float:
        """Return after how many seconds there is something left; 0: now."""
        now = self._seconds()
        gained = (now - self._since) * self._per_second
        self._left = min(self._left + gained, self._per_second * BURST_SECONDS)
        self._since = now
        return 0.0 if self._left > 0 else (1 - self._left) / self._per_second

    def spend(self, amount: float) -> None:
        """Take something out."""
        self._left -= amount


class Shares:
    """How much each caller has left of requests and of bytes sent."""

    def __init__(
        self,
        requests_per_second: float,
        bytes_per_second: float,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates = (requests_per_second, bytes_per_second)
        self._seconds = seconds
        self._buckets: dict[Hashable, tuple[Bucket, Bucket]] = {}

    def admit(self, caller: Hashable) -> Callable[[int], None]:
        """Let a request in, and return what takes note of the bytes that it brings.

        Args:
            caller: Whose share it is.

        Raises:
            TooFast: The caller has nothing left.
        """
        requests, sent = self._of(caller)
        wait = max(requests.wait(), sent.wait())
        if wait > 0:
            raise TooFast(retry_after=wait)
        requests.spend(1)
        return sent.spend

    def _of(self, caller: Hashable) -> tuple[Bucket, Bucket]:
        found = self._buckets.pop(caller, None)
        if found is None:
            requests, sent = (Bucket(rate, self._seconds) for rate in self._rates)
            found = (requests, sent)
            while len(self._buckets) >= MOST_CALLERS:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = found  # at the end: who has not asked for longest goes first
        return found
