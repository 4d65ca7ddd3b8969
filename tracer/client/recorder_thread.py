"""A recorder that runs in its own thread and event loop.

The code takes no locks. A signal handler or a finalizer may interrupt `record` in any thread, and
call `record` again. With a lock, the second call would wait forever for the first.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tracer.client.otel_context import suppress_instrumentation
from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.recorder.counts import error_location, ids_of
from tracer.recorder.recorder import BATCH_EVENTS, CLOSING_SECONDS, Recorder
from tracer.recorder.spool import Spool
from tracer.records.events import Event
from tracer.records.ids import IdSource
from tracer.redaction import Redaction
from tracer.store import TraceWriter

log = get_logger(__name__)

Answer = TypeVar("Answer")

OpenWriter = Callable[[], AbstractAsyncContextManager[TraceWriter]]
OpenSpool = Callable[[], Spool]

GATHER_SECONDS = 0.05
"""How long a queued event waits, so that later events join its batch. If a caller waits for the
event, it is recorded at once."""

MAX_QUEUED = 100_000
"""How many `record` calls may be queued by default. The events of further calls are dropped,
because the queue would grow without limit if the disk hangs."""

ENDING_SECONDS = 30.0
"""How long `close` waits for the thread to end. If the disk hangs, the thread never ends."""


PAUSE_SECONDS = 2.0
"""How long `pause` waits for the thread to stop, and how long the thread waits for `resume`."""


class _Queued(NamedTuple):
    events: Sequence[Event]
    durable: Future[None] | None
    """The future of the caller; None if the caller does not wait."""


class RecorderThread:
    """Records events from any thread in the order of the `record` calls, until it is closed."""

    def __init__(
        self,
        open_writer: OpenWriter,
        open_spool: OpenSpool,
        clock: Clock,
        ids: IdSource,
        redaction: Redaction | None = None,
        patience: float | None = None,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """Start the thread, and wait until it can record.

        Args:
            open_writer: Opens the store, in the thread's event loop.
            open_spool: Opens the spool.
            clock: Returns the current time.
            ids: Mints ids.
            redaction: Masks secrets; None: the standard redaction.
            patience: How many seconds an event waits for the store; see `Recorder`.
            max_queued: How many `record` calls may be queued. The events of further calls are
                dropped.

        Raises:
            Exception: `open_writer` or `open_spool` raised this exception.
        """
        self.is_inherited = False
        """Whether this process was forked after the thread started. The thread then runs only in
        the parent process."""
        self._open_writer = open_writer
        self._open_spool = open_spool
        self._clock = clock
        self._ids = ids
        self._redaction = redaction
        self._patience = patience
        self._max_queued = max_queued
        self._queue: deque[_Queued] = deque()
        self._batch: Sequence[_Queued] = ()
        self._requests: set[Future[Any]] = set()
        self._is_woken = False
        self._is_hurried = False
        self._is_closing = False
        self._has_ended = False
        self._resumed = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._changed: asyncio.Event
        self._writer: TraceWriter
        self.recorder: Recorder
        ready: Future[None] = Future()
        # A daemon, because the interpreter joins other threads before it calls `_close_all`. In an
        # empty context, because the thread belongs to no run.
        self._thread = threading.Thread(
            target=Context().run, args=(self._run, ready), name="tracer-client", daemon=True
        )
        self._thread.start()
        self._ident = self._thread.ident
        ready.result()

    @property
    def waiting(self) -> int:
        """The number of `record` calls whose events are not durable yet."""
        return len(self._queue) + len(self._batch)

    @property
    def is_current(self) -> bool:
        """Whether the calling code runs in this thread.

        Such code must not wait for an event to become durable, because it would wait forever.
        """
        return self._ident == threading.get_ident()

    def record(self, events: Sequence[Event], durable: Future[None] | None = None) -> None:
        """Queue events and return at once.

        Args:
            events: The events.
            durable: A future that becomes done when the events are durable or dropped.
        """
        queued = _Queued(events, durable)
        if self._is_closing:
            _drop(queued, "recorded_after_close")
        elif len(self._queue) >= self._max_queued:
            _drop(queued, "too_many_events_wait")
        else:
            self._queue.append(queued)
            self._wake(at_once=durable is not None or len(self._queue) >= BATCH_EVENTS)
            if self._has_ended:
                self._drop_queue()

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Run a coroutine function in the thread's event loop; its argument is the store's writer.

        Raises:
            RuntimeError: The thread is closing.
        """
        if self._is_closing:
            raise RuntimeError("The connection is closed.")
        coroutine = work(self._writer)
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        self._requests.add(answer)
        answer.add_done_callback(self._requests.discard)
        if self._has_ended:
            answer.cancel()
        return answer

    def pause(self) -> None:
        """Block the thread between two callbacks of its event loop until `resume` is called.

        This is done before a fork, so that the thread holds no locks in the meantime.
        """
        paused = threading.Event()

        def block_loop() -> None:
            paused.set()
            self._resumed.wait(PAUSE_SECONDS)

        self._resumed.clear()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(block_loop)
            paused.wait(PAUSE_SECONDS)

    def resume(self) -> None:
        """Unblock the thread."""
        self._resumed.set()

    def begin_to_close(self) -> None:
        """Ask the thread to make queued events durable and to end. Do not wait for this."""
        self._is_closing = True
        if not self.is_inherited:
            self._wake(at_once=True)

    def close(self) -> None:
        """Make queued events durable, stop the thread and wait for its end."""
        self.begin_to_close()
        if not self.is_inherited and not self.is_current:
            self._thread.join(ENDING_SECONDS)

    def _wake(self, at_once: bool) -> None:
        if self._is_hurried or (self._is_woken and not at_once):
            return
        self._is_woken = True
        wake: Callable[[], object] = self._changed.set
        if at_once:
            self._is_hurried = True
        else:
            wake = partial(self._loop.call_later, GATHER_SECONDS, wake)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(wake)

    def _run(self, ready: Future[None]) -> None:
        try:
            # Otherwise a program's instrumentation would trace our requests, and record them here.
            with suppress_instrumentation():
                asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                log.error("recorder_thread_failed", error=error_location(error))
            else:
                ready.set_exception(error)
        finally:
            self._has_ended = True
            self._drop_queue()
            for queued in self._batch:
                _drop(queued, "recorder_thread_ended")
            for answer in list(self._requests):
                answer.cancel()

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        async with (
            self._open_writer() as self._writer,
            Recorder(
                self._writer,
                self._open_spool(),
                clock=self._clock,
                ids=self._ids,
                patience=self._patience,
                redaction=self._redaction,
            ) as self.recorder,
        ):
            ready.set_result(None)
            await self._record_queued()

    async def _record_queued(self) -> None:
        """Pass queued events to the recorder, until the connection is closed."""
        while not self._is_closing or self._queue:
            if not self._queue:
                await self._changed.wait()
            self._changed.clear()
            # Reset before the batch is taken, so that a later `record` wakes this loop again.
            self._is_woken = self._is_hurried = False
            self._batch = self._next_batch()
            await self.recorder.record(*(event for each in self._batch for event in each.events))
            batch, self._batch = self._batch, ()
            for each in batch:
                if each.durable is not None:
                    each.durable.set_result(None)
        if requests := {asyncio.wrap_future(each) for each in list(self._requests)}:
            await asyncio.wait(requests, timeout=CLOSING_SECONDS)

    def _next_batch(self) -> Sequence[_Queued]:
        batch: list[_Queued] = []
        size = 0
        while self._queue and size < BATCH_EVENTS:
            batch.append(self._queue.popleft())
            size += len(batch[-1].events)
        return batch

    def _drop_queue(self) -> None:
        with suppress(IndexError):
            while True:
                _drop(self._queue.popleft(), "recorder_thread_ended")


def _drop(queued: _Queued, reason: str) -> None:
    """Log that events are dropped, and release the caller that waits for the events."""
    if queued.events:
        log.error("events_dropped", reason=reason, **ids_of(queued.events))
    if queued.durable is not None and not queued.durable.done():
        queued.durable.set_result(None)
