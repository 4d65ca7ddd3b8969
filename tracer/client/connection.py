"""A connection to a store that any thread and any event loop of a user's program can use."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from opentelemetry import context as otel_context
from opentelemetry.context import Context as OtelContext

from tracer.clock import Clock, steady_now
from tracer.logs import get_logger
from tracer.recorder import (
    CLOSING_SECONDS,
    MAX_QUEUED,
    Recorder,
    RecorderCounts,
    Spool,
    error_location,
    promise,
)
from tracer.records import IdSource, new_id
from tracer.records.events import Event, Stamp
from tracer.redaction import Redaction
from tracer.store import TraceWriter

# --- Suppress OpenTelemetry's tracing of Tracer's own requests.

SUPPRESSED = ("suppress_instrumentation", otel_context._SUPPRESS_INSTRUMENTATION_KEY)
"""The keys that instrumentations look for, as in `opentelemetry.instrumentation.utils`."""


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Make OpenTelemetry's instrumentations record nothing inside a `with` block."""
    context = otel_context.get_current()
    for key in SUPPRESSED:
        context = otel_context.set_value(key, True, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


# --- The thread and the event loop of a recorder in a user's program.

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


MAX_WAITING = 10_000
"""The number of pending calls at which `record` of a buffered connection waits (back-pressure)."""

DONE: Future[None] = Future()
DONE.set_result(None)


class Connection:
    """Records to one store. No method that records raises an exception.

    Close the connection at the end, or use it in a `with` statement. If the program does neither,
    the connection is closed when the interpreter exits. A forked process starts a new recorder at
    the first use; pending events stay with the parent process.
    """

    is_disabled = False
    """Whether nothing is recorded, because `TRACER_DISABLED` is set."""

    def __init__(
        self,
        open_writer: OpenWriter,
        open_spool: OpenSpool,
        *,
        buffered: bool = False,
        clock: Clock = steady_now,
        ids: IdSource = new_id,
        redaction: Redaction | None = None,
        patience: float | None = None,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """Start the recorder.

        Args:
            open_writer: Opens the store, in the recorder's event loop.
            open_spool: Opens the spool, which holds events while the store does not accept them.
            buffered: Whether `record` returns a future that is done at once, so that callers never
                wait. If the process is killed, the latest events are then lost.
            clock: Returns the time of an event.
            ids: Mints ids.
            redaction: Masks secrets; None: the standard redaction.
            patience: How many seconds an event waits for the store before it is spooled; None: the
                recorder's default.
            max_queued: How many `record` calls may be queued. The events of further calls are
                dropped and logged.

        Raises:
            Exception: `open_writer` raised this exception.
        """
        self.ids = ids
        self._start: Callable[[], RecorderThread] = partial(
            RecorderThread, open_writer, open_spool, clock, ids, redaction, patience, max_queued
        )
        self.open_blocks: dict[int, int] = {}
        """For each thread with open `with` blocks: their number."""
        self._is_buffered = buffered
        self._is_closed = False
        self._lock = threading.Lock()
        # The recorders of parent processes stay in the list: if their event loops were garbage
        # collected, they would close files that this process shares with its parent.
        self._threads = [self._start()]
        _open.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def counts(self) -> RecorderCounts:
        """The numbers of events that this process's recorder has stored, spooled and dropped."""
        return self._thread().recorder.counts

    @property
    def waiting(self) -> int:
        """The number of `record` calls whose events are not durable yet."""
        return self._thread().recorder.waiting

    def stamp(self) -> Stamp:
        """Return the fields that all events contain: the current time and the recorder's id."""
        return self._thread().recorder.stamp()

    def record(self, *events: Event) -> Future[None]:
        """Record events. The returned future never fails.

        The future is done when the events are durable: in the store, or in the spool on disk.

        If the connection is buffered and fewer than `MAX_WAITING` calls are pending, the future is
        done at once.
        """
        thread = self._thread()
        if (self._is_buffered and thread.recorder.waiting < MAX_WAITING) or thread.is_current:
            thread.record(events)
            return DONE
        durable = promise()
        thread.record(events, durable)
        return durable

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Run a coroutine function in the recorder's event loop.

        `close` waits up to `CLOSING_SECONDS` for the coroutine, then cancels it.

        Args:
            work: The coroutine function. Its argument is the store's writer.

        Raises:
            RuntimeError: The connection is closed.
        """
        return self._thread().run(work)

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until all earlier events are durable: in the store, or in the spool on disk.

        Return True. If the timeout expires first, return False.

        Args:
            seconds: The timeout; None: no timeout.
        """
        return not wait([self._flushed()], seconds).not_done

    def close(self) -> None:
        """Make pending events durable, and stop.

        Events that are recorded later are dropped and logged.
        """
        self._is_closed = True
        self._threads[-1].close()
        _open.discard(self)

    def _flushed(self) -> Future[None]:
        durable = promise()
        self._thread().record((), durable)
        return durable

    def _thread(self) -> RecorderThread:
        """Return this process's recorder.

        A forked process starts its own recorder, because threads do not survive a fork.
        """
        thread = self._threads[-1]
        if thread.is_inherited and not self._is_closed:
            with self._lock:
                if self._threads[-1].is_inherited:
                    self._restart()
            thread = self._threads[-1]
        return thread

    def _restart(self) -> None:
        try:
            self._threads.append(self._start())
        except Exception as error:
            # For example, Python cannot start a thread while the interpreter shuts down.
            log.error("recorder_not_started", error=error_location(error))
            self._is_closed = True
            self._threads[-1].begin_to_close()


_open: set[Connection] = set()


def open_connections() -> list[Connection]:
    """Return the open connections of this process."""
    return [each for each in list(_open) if not each._threads[-1].is_inherited]


def flush_connections(seconds: float = CLOSING_SECONDS) -> None:
    """Make the pending events of all connections durable.

    A forked process does this when it ends, because it may end without a call of `_close_all`.
    """
    wait([each._flushed() for each in open_connections()], seconds)


def _close_all() -> None:
    # Start to close all before waiting for any: each may wait for a store that does not answer.
    for connection in list(_open):
        connection._threads[-1].begin_to_close()
    for connection in list(_open):
        connection.close()


_paused: list[RecorderThread] = []


def _before_fork() -> None:
    for connection in list(_open):
        thread = connection._threads[-1]
        if not thread.is_inherited and not thread.is_current:
            _paused.append(thread)
            thread.pause()


def _after_fork() -> None:
    while _paused:
        _paused.pop().resume()


def _after_fork_in_child() -> None:
    _after_fork()
    for connection in _open:
        connection._lock = threading.Lock()
        # A flag, because comparing process ids would take a system call for each event.
        connection._threads[-1].is_inherited = True


# A forked process may end after the first of these. The program's threads record until the second.
threading._register_atexit(flush_connections)  # type: ignore[attr-defined]
atexit.register(_close_all)
# The recorder's thread pauses during a fork, because an import that it has begun, for example,
# would # stay half done in the forked process.
os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)


# --- Who a run is for: the user, session, tags and metadata of the runs that start in a `with`
# block.
#
# The values are in OpenTelemetry's context, as the current work is (`tracer.client.work`). So they
# reach the same tasks.

_ABOUT = otel_context.create_key("tracer-about")


class About(NamedTuple):
    """The values that a run gets from the `about` blocks around its start."""

    user: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}

    def within(self, user: Any, session: Any, tags: Any, metadata: Any) -> About:
        """Return these values with inner values, which take precedence.

        An inner user or session replaces the outer one, unless it is None or empty. Tags are added.
        The keys of the metadata are merged. Tags and metadata of other types are ignored.
        """
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            tags = (tags,) if isinstance(tags, str) else ()
        return About(
            self.user if user in (None, "") else str(user),
            self.session if session in (None, "") else str(session),
            tuple(dict.fromkeys((*self.tags, *map(str, tags)))),
            {**self.metadata, **(metadata if isinstance(metadata, Mapping) else {})},
        )


class _Block:
    """An open `about` block, and the block around it."""

    __slots__ = ("about", "connection", "is_detached", "outer")

    def __init__(self, connection: Connection, about: About, outer: object) -> None:
        self.connection = connection
        self.about = about
        self.outer = outer
        self.is_detached = False
        """Whether the block was left in a context other than the one in which it was entered."""


def current_about(connection: Connection, context: OtelContext | None = None) -> About | None:
    """Return the values for runs of a connection that start here; None outside of such blocks.

    Args:
        connection: The connection that records the run.
        context: The context in which the run starts; None: the current context.
    """
    block = otel_context.get_value(_ABOUT, context)
    while isinstance(block, _Block):
        if block.connection is connection and not block.is_detached:
            return block.about
        block = block.outer
    return None


@contextmanager
def about_bound(connection: Connection, about: About) -> Iterator[None]:
    """Give runs of a connection that start inside a `with` block these values."""
    block = _Block(connection, about, otel_context.get_value(_ABOUT))
    token = otel_context.attach(otel_context.set_value(_ABOUT, block))
    try:
        yield
    finally:
        try:
            # `detach` would log an error if the token belongs to another context.
            token.var.reset(token)
        except (ValueError, RuntimeError):
            # A generator that was not read to its end is closed in another context. The block
            # then remains in its reader's context, where it must not count.
            block.is_detached = True
