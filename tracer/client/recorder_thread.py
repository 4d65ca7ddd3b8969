"""A recorder in a thread of its own, with an event loop of its own.

Nothing here takes a lock: a signal handler, or the collector that closes a forgotten generator, may
record in the middle of recording, in any thread.
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
"""How long events gather that nobody waits for."""

MAX_QUEUED = 100_000
"""How many `record` calls may be queued, by default. More are dropped: the disk may hang, too."""

ENDING_SECONDS = 30.0
"""How long closing waits for the thread's end, which a disk that hangs would put off for ever."""


PAUSE_SECONDS = 2.0
"""How long it may take until the thread stands still, and how long it does."""


class _Queued(NamedTuple):
    events: Sequence[Event]
    durable: Future[None] | None
    """Who waits for it, if anybody does."""


class RecorderThread:
    """Takes events from any thread, in the order in which they come, until it is closed."""

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
        """Start it, and wait until it records.

        Args:
            open_writer: Opens the store, in the thread's event loop.
            open_spool: Opens the spool.
            clock: Returns the current time.
            ids: Mints ids.
            redaction: Masks secrets; None: the standard redaction.
            patience: How many seconds an event waits for the store; see `Recorder`.
            max_queued: How many `record` calls may be queued; more are dropped.

        Raises:
            Exception: Whatever opening the store raises.
        """
        self.is_inherited = False
        """Whether this is a forked process: the thread runs in the parent alone."""
        self._open_writer = open_writer
        self._open_spool = open_spool
        self._clock = clock
        self._ids = ids
        self._redaction = redaction
        self._patience = patience
        self._max_queued = max_queued
        self._queue: deque[_Queued] = deque()
        self._taken: Sequence[_Queued] = ()
        self._asked: set[Future[Any]] = set()
        self._is_woken = False
        self._is_hurried = False
        self._is_closing = False
        self._is_over = False
        self._goes_on = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._changed: asyncio.Event
        self._writer: TraceWriter
        self.recorder: Recorder
        ready: Future[None] = Future()
        # A daemon: else the interpreter would wait for its end before anybody asks for it. In an
        # empty context: it belongs to nobody's run.
        self._thread = threading.Thread(
            target=Context().run, args=(self._live, ready), name="tracer-client", daemon=True
        )
        self._thread.start()
        self._ident = self._thread.ident
        ready.result()

    @property
    def waiting(self) -> int:
        """How many `record` calls are not durable yet."""
        return len(self._queue) + len(self._taken)

    @property
    def is_current(self) -> bool:
        """Whether this code runs in it: what waits for it there would wait for ever."""
        return self._ident == threading.get_ident()

    def record(self, events: Sequence[Event], durable: Future[None] | None = None) -> None:
        """Record events, and return at once.

        Args:
            events: What happened.
            durable: Is done when they are durable, or lost; it never fails.
        """
        queued = _Queued(events, durable)
        if self._is_closing:
            _lose(queued, "recorded_after_close")
        elif len(self._queue) >= self._max_queued:
            _lose(queued, "too_many_events_wait")
        else:
            self._queue.append(queued)
            self._wake(at_once=durable is not None or len(self._queue) >= BATCH_EVENTS)
            if self._is_over:
                self._lose_queue()

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Do asynchronous work with the store in the recorder's event loop.

        Raises:
            RuntimeError: It is closed.
        """
        if self._is_closing:
            raise RuntimeError("The connection is closed.")
        coroutine = work(self._writer)
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        self._asked.add(answer)
        answer.add_done_callback(self._asked.discard)
        if self._is_over:
            answer.cancel()
        return answer

    def pause(self) -> None:
        """Let it stand still between two things that it does, until `resume`."""
        paused = threading.Event()

        def stand_still() -> None:
            paused.set()
            self._goes_on.wait(PAUSE_SECONDS)

        self._goes_on.clear()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(stand_still)
            paused.wait(PAUSE_SECONDS)

    def resume(self) -> None:
        """Let it go on."""
        self._goes_on.set()

    def begin_to_close(self) -> None:
        """Let it make durable what waits, and end."""
        self._is_closing = True
        if not self.is_inherited:
            self._wake(at_once=True)

    def close(self) -> None:
        """Make durable what waits, and end; a second time, wait for the end."""
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

    def _live(self, ready: Future[None]) -> None:
        try:
            # Else a program's instrumentation would trace what we write, and we would record that.
            with suppress_instrumentation():
                asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                log.error("recorder_thread_failed", error=error_location(error))
            else:
                ready.set_exception(error)
        finally:
            self._is_over = True
            self._lose_queue()
            for queued in self._taken:
                _lose(queued, "recorder_thread_ended")
            for answer in list(self._asked):
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
            await self._take_in()

    async def _take_in(self) -> None:
        """Hand what comes to the recorder until it is closed."""
        while not self._is_closing or self._queue:
            if not self._queue:
                await self._changed.wait()
            self._changed.clear()
            # In this order: whoever comes later than the taking wakes us again.
            self._is_woken = self._is_hurried = False
            self._taken = self._take()
            await self.recorder.record(*(event for each in self._taken for event in each.events))
            taken, self._taken = self._taken, ()
            for each in taken:
                if each.durable is not None:
                    each.durable.set_result(None)
        if asked := {asyncio.wrap_future(each) for each in list(self._asked)}:
            await asyncio.wait(asked, timeout=CLOSING_SECONDS)

    def _take(self) -> Sequence[_Queued]:
        taken: list[_Queued] = []
        size = 0
        while self._queue and size < BATCH_EVENTS:
            taken.append(self._queue.popleft())
            size += len(taken[-1].events)
        return taken

    def _lose_queue(self) -> None:
        with suppress(IndexError):
            while True:
                _lose(self._queue.popleft(), "recorder_thread_ended")


def _lose(queued: _Queued, why: str) -> None:
    """Log events that nobody records any more, and let go who waits for them."""
    if queued.events:
        log.error("events_dropped", reason=why, **ids_of(queued.events))
    if queued.durable is not None and not queued.durable.done():
        queued.durable.set_result(None)
