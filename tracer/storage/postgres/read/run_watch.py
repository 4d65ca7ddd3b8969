"""Watching runs: which runs are watched in this process, and when their watchers are woken.

A watcher is woken at once if this process writes to the run, soon if another process notifies
(`tracer.storage.postgres.connection.notifications`), and in any case within a second: one query a
second reads the revisions of all watched runs. A watcher only learns that something may have
changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import TracebackType
from typing import Self
from uuid import UUID

from tracer.logs import get_logger
from tracer.storage.postgres.connection.pool import cancel_until_done
from tracer.store import TraceReader

POLL_SECONDS = 1.0

log = get_logger(__name__)


class RunWatch:
    """Wakes the watchers of runs that may have changed.

    Use it as an async context manager; inside, it polls the watched runs.
    """

    def __init__(
        self,
        reader: TraceReader,
        poll_seconds: float = POLL_SECONDS,
        on_watched: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._on_watched = on_watched
        self._poll_seconds = poll_seconds
        self._watchers: dict[UUID, set[asyncio.Event]] = {}
        self._is_watched = asyncio.Event()
        self._is_over = False
        self._polling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # In an empty context, because it is not part of the request that first needs the project.
        self._polling = asyncio.create_task(self._poll(), context=Context())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        if self._polling is not None:
            await cancel_until_done(self._polling)

    @property
    def is_over(self) -> bool:
        """Whether watching has ended. If so, watchers must stop."""
        return self._is_over

    @property
    def watchers(self) -> int:
        """The number of watchers."""
        return sum(map(len, self._watchers.values()))

    @property
    def watched(self) -> set[UUID]:
        """The runs that are watched."""
        return set(self._watchers)

    @contextmanager
    def watching(self, root_plan_id: UUID) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the run may have changed. The watcher clears it."""
        woken = asyncio.Event()
        self._watchers.setdefault(root_plan_id, set()).add(woken)
        self._is_watched.set()
        self._on_watched()
        try:
            yield woken
        finally:
            watchers = self._watchers[root_plan_id]
            watchers.remove(woken)
            if not watchers:
                del self._watchers[root_plan_id]
            if not self._watchers:
                self._is_watched.clear()

    def wake(self, root_plan_ids: Collection[UUID]) -> None:
        """Wake the watchers of some runs."""
        for root_plan_id in root_plan_ids if self._watchers else ():
            for woken in self._watchers.get(root_plan_id, ()):
                woken.set()

    async def until_watched(self) -> None:
        """Wait until a run is watched."""
        await self._is_watched.wait()

    def end(self) -> None:
        """End watching and wake all watchers, so that they do not delay the server's shutdown."""
        self._is_over = True
        self.wake([*self._watchers])

    async def _poll(self) -> None:
        """Poll the revisions of the watched runs, and wake the watchers of those that changed."""
        known: dict[UUID, int] = {}
        is_answered = True
        while True:
            await self._is_watched.wait()
            watched = list(self._watchers)
            try:
                revisions = await self._reader.read_revisions(watched)
            except Exception as error:  # the next query may succeed
                if is_answered:
                    log.warning("watched_runs_not_read", error=type(error).__name__)
                    # So that watchers notice and report the failure.
                    self.wake(watched)
                is_answered = False
            else:
                is_answered = True
                self.wake([run for run in watched if known.get(run) != revisions.get(run)])
                # A missing run wakes its watchers each time: for them, it was deleted.
                self.wake([run for run in watched if run not in revisions])
                known = revisions
            await asyncio.sleep(self._poll_seconds)
