"""A connection to a store that any thread and any event loop of a user's program can use."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from tracer.client.recorder_thread import OpenSpool, OpenWriter, RecorderThread
from tracer.clock import Clock, utc_now
from tracer.logs import get_logger
from tracer.recorder.counts import RecorderCounts, error_location
from tracer.recorder.recorder import CLOSING_SECONDS, MAX_QUEUED, promise
from tracer.records.events import Event, Stamp
from tracer.records.ids import IdSource, new_id
from tracer.redaction import Redaction
from tracer.store import TraceWriter

log = get_logger(__name__)

Answer = TypeVar("Answer")

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
        clock: Clock = utc_now,
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


def _flush_all() -> None:
    """Make pending events durable when a forked process ends.

    Such a process may end without a call of `_close_all`.
    """
    of_this_process = [each for each in list(_open) if not each._threads[-1].is_inherited]
    wait([each._flushed() for each in of_this_process], CLOSING_SECONDS)


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
threading._register_atexit(_flush_all)  # type: ignore[attr-defined]
atexit.register(_close_all)
# The recorder's thread pauses during a fork, because an import that it has begun, for example,
# would # stay half done in the forked process.
os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
