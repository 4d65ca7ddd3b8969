"""Who watches which run in this process, and when they are woken.

A watcher is woken at once where this process wrote, soon after another told of its writing
(`tracer.storage.postgres.connection.notifications`), and within a second whatever happened: all
watched runs' revisions are asked for in one query a second. Nothing is kept for a watcher but the
fact that it was woken.
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
    """Wakes those who watch a run when it may have changed.

    To be entered with `async with`: while inside, it looks after the runs that are watched.
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
        # Whoever it is that first asks for a project: the task is not of that request.
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
        """Whether watching has ended: nobody is woken any more."""
        return self._is_over

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(map(len, self._watchers.values()))

    @property
    def watched(self) -> set[UUID]:
        """The runs that somebody watches."""
        return set(self._watchers)

    @contextmanager
    def watching(self, root_plan_id: UUID) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the run may have changed; who waits clears it."""
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
        """Wake those who watch any of the runs."""
        for root_plan_id in root_plan_ids if self._watchers else ():
            for woken in self._watchers.get(root_plan_id, ()):
                woken.set()

    async def until_watched(self) -> None:
        """Return as soon as somebody watches a run."""
        await self._is_watched.wait()

    def end(self) -> None:
        """Wake all, to leave: the server ends, and must not wait for those who would stay."""
        self._is_over = True
        self.wake([*self._watchers])

    async def _poll(self) -> None:
        """Wake by the revisions that the store has, which needs nobody to tell of a write."""
        known: dict[UUID, int] = {}
        is_answered = True
        while True:
            await self._is_watched.wait()
            watched = list(self._watchers)
            try:
                revisions = await self._reader.read_revisions(watched)
            except Exception as error:  # whatever it is, it is asked again
                if is_answered:
                    log.warning("watched_runs_not_read", error=type(error).__name__)
                    # To find out, and tell it: nobody else will wake them meanwhile.
                    self.wake(watched)
                is_answered = False
            else:
                is_answered = True
                self.wake([run for run in watched if known.get(run) != revisions.get(run)])
                # A run that is not there wakes each time: to those who watch it, it was deleted.
                self.wake([run for run in watched if run not in revisions])
                known = revisions
            await asyncio.sleep(self._poll_seconds)
