"""A recorder in a thread of its own, with an event loop of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from tracer.clock import Clock
from tracer.events import Event
from tracer.ids import IdSource
from tracer.logs import get_logger
from tracer.recorder.counts import ids_of
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool
from tracer.store import TraceWriter

log = get_logger(__name__)

Answer = TypeVar("Answer")

OpenWriter = Callable[[], AbstractAsyncContextManager[TraceWriter]]
OpenSpool = Callable[[], Spool]


class RecorderThread:
    """Takes events from any thread, in the order in which they come, until it is closed."""

    def __init__(
        self, open_writer: OpenWriter, open_spool: OpenSpool, clock: Clock, ids: IdSource
    ) -> None:
        """Start it, and wait until it records.

        Raises:
            Exception: Whatever opening the store raises.
        """
        self.process_id = os.getpid()
        self.waiting = 0
        """How many events are not durable yet."""
        self._open_writer = open_writer
        self._open_spool = open_spool
        self._clock = clock
        self._ids = ids
        self._lock = threading.Lock()
        self._queue: deque[tuple[Sequence[Event], Future[None]]] = deque()
        self._is_woken = False
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop
        self._changed: asyncio.Event
        self._writer: TraceWriter
        self.recorder: Recorder
        ready: Future[None] = Future()
        # A daemon: else the interpreter would wait for its end before anybody asks for it.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="tracer-client", daemon=True
        )
        self._thread.start()
        ready.result()

    def record(self, events: Sequence[Event]) -> Future[None]:
        """Record events, and return what is done when they are durable; it never fails."""
        durable: Future[None] = Future()
        durable.set_running_or_notify_cancel()  # so that nobody who waits for it can cancel it
        with self._lock:
            is_closing = self._is_closing
            if not is_closing:
                self._queue.append((events, durable))
                self.waiting += len(events)
                self._wake()
        if is_closing:
            log.warning("recorded_after_close", **ids_of(events))
            durable.set_result(None)
        return durable

    def flush(self) -> Future[None]:
        """Return what is done when all that was recorded before is durable."""
        return self.record(())

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Do asynchronous work with the store in the recorder's event loop.

        Raises:
            RuntimeError: It is closed.
        """
        with self._lock:
            if self._is_closing:
                raise RuntimeError("The connection is closed.")
            return asyncio.run_coroutine_threadsafe(work(self._writer), self._loop)

    def close(self) -> None:
        """Make durable what waits, and end; a second time, wait for the end."""
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._wake()
        self._thread.join()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        try:
            async with self._open_writer() as self._writer:
                spool = self._open_spool()
                async with Recorder(
                    self._writer, spool, clock=self._clock, ids=self._ids
                ) as self.recorder:
                    ready.set_result(None)
                    await self._take_in()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _take_in(self) -> None:
        """Hand what comes to the recorder, which puts it together, until it is closed."""
        under_way: set[asyncio.Task[None]] = set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            with self._lock:
                taken, self._queue = self._queue, deque()
                self._is_woken = False
                is_closing = self._is_closing
            if taken:
                is_flush = not all(events for events, _ in taken)
                before = frozenset(under_way) if is_flush else frozenset()
                task = asyncio.create_task(self._record(taken, before))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            if is_closing:
                if under_way:
                    await asyncio.wait(under_way)
                return

    async def _record(
        self,
        taken: Sequence[tuple[Sequence[Event], Future[None]]],
        before: frozenset[asyncio.Task[None]],
    ) -> None:
        events = [event for several, _ in taken for event in several]
        await self.recorder.record(*events)
        if before:
            await asyncio.wait(before)
        with self._lock:
            self.waiting -= len(events)
        for _, durable in taken:
            durable.set_result(None)
