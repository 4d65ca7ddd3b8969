"""A value of the database that is read often, and may be a little old."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from tracer.storage.postgres.projects.single_flight import SingleFlight

Value = TypeVar("Value")

CACHE_SECONDS = 2.0
"""How old a cached value can be. Other servers see a change after this time."""


class Cached(Generic[Value]):
    """The cache of one value. Belongs to one event loop."""

    def __init__(
        self, read: Callable[[], Coroutine[Any, Any, Value]], seconds: float = CACHE_SECONDS
    ) -> None:
        """Create an empty cache.

        Args:
            read: Reads the value. Its errors are raised, and not cached.
            seconds: How long a value is used.
        """
        self._read = read
        self._seconds = seconds
        self._stored: tuple[float, Value] | None = None
        self._flight = SingleFlight[Value]()

    async def get(self) -> Value:
        """Return the value, and read it if it is too old.

        Concurrent callers share one read. A cancelled caller does not affect the others.
        """
        if self._stored is not None and time.monotonic() < self._stored[0]:
            return self._stored[1]
        return await self._flight.run("value", self._refresh)

    def set(self, value: Value) -> Value:
        """Replace the value, and return it."""
        self._stored = time.monotonic() + self._seconds, value
        return value

    async def _refresh(self) -> Value:
        return self.set(await self._read())
