"""The thread and the event loop of a recorder in a user's program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context
from typing import Any, TypeVar

from tracer.client.otel_context import suppress_instrumentation
from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.recorder.counts import error_location
from tracer.recorder.recorder import CLOSING_SECONDS, MAX_QUEUED, Recorder
from tracer.recorder.spool import Spool
from tracer.records.events import Event
from tracer.records.ids import IdSource
from tracer.redaction import Redaction
from tracer.store import TraceWriter

log = get_logger(__name__)

Answer = TypeVar("Answer")

OpenWriter = Callable[[], AbstractAsyncContextManager[TraceWriter]]
OpenSpool = Callable[[], Spool]

ENDING_SECONDS = 30.0
"""How long `close` waits for the thread to end. If the disk hangs, the thread never ends."""


PAUSE_SECONDS = 2.0
"""How long `pause` waits for the thread to stop, and how long the thread waits for `resume`."""


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
        self._requests: set[Future[Any]] = set()
        self._is_closing = False
        self._has_ended = False
        self._resumed = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Event
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
        if self._is_closing:
            self.recorder.drop(events, durable, "recorded_after_close")
        else:
            self.recorder.submit(events, durable)

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
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._closing.set)

    def close(self) -> None:
        """Make queued events durable, stop the thread and wait for its end."""
        self.begin_to_close()
        if not self.is_inherited and not self.is_current:
            self._thread.join(ENDING_SECONDS)

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
            for answer in list(self._requests):
                answer.cancel()

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        async with (
            self._open_writer() as self._writer,
            Recorder(
                self._writer,
                self._open_spool(),
                clock=self._clock,
                ids=self._ids,
                patience=self._patience,
                redaction=self._redaction,
                max_queued=self._max_queued,
            ) as self.recorder,
        ):
            ready.set_result(None)
            await self._closing.wait()
            if requests := {asyncio.wrap_future(each) for each in list(self._requests)}:
                await asyncio.wait(requests, timeout=CLOSING_SECONDS)
