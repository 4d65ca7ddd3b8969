"""A connection to a store, from any thread and any event loop of a program that is not ours."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from tracer.client.recorder_thread import MAX_QUEUED, OpenSpool, OpenWriter, RecorderThread
from tracer.clock import Clock, utc_now
from tracer.logs import get_logger
from tracer.recorder.counts import RecorderCounts, error_location
from tracer.recorder.recorder import CLOSING_SECONDS, Stamp
from tracer.records.events import Event
from tracer.records.ids import IdSource, new_id
from tracer.redaction import Redaction
from tracer.store import TraceWriter

log = get_logger(__name__)

Answer = TypeVar("Answer")

MAX_WAITING = 10_000
"""How many `record` calls of a buffered connection may wait before recording waits, too."""

DONE: Future[None] = Future()
DONE.set_result(None)


class Connection:
    """Records to one store, and never raises for it. Close it at the end, or use it with `with`.

    The end of the interpreter closes it, too. In a forked process it begins anew at its first use:
    what waits goes on in the parent.
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
            open_writer: Gives the store, in the recorder's event loop.
            open_spool: Gives where events wait that the store does not take.
            buffered: Whether `record` leaves nothing to wait for: what a process recorded in its
                last moments is then lost when it is killed.
            clock: Tells when an event happened.
            ids: Mints ids.
            redaction: What masks secrets; None: the standard.
            patience: How many seconds an event waits for the store before it is spooled; None: the
                recorder's default.
            max_queued: How many `record` calls may be queued; more are dropped and logged.

        Raises:
            Exception: Whatever `open_writer` raises.
        """
        self.ids = ids
        self._start: Callable[[], RecorderThread] = partial(
            RecorderThread, open_writer, open_spool, clock, ids, redaction, patience, max_queued
        )
        self._is_buffered = buffered
        self._is_closed = False
        self._lock = threading.Lock()
        # Those of the processes before this one are kept: to collect their event loops would be
        # to close files that are shared with them.
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
        """How many `record` calls are not durable yet."""
        return self._thread().waiting

    def stamp(self) -> Stamp:
        """Return what every event starts with: the time and the recorder's id."""
        return self._thread().recorder.stamp()

    def record(self, *events: Event) -> Future[None]:
        """Record events, and return what is done once they are durable; it never fails.

        Of a buffered connection it is done at once, unless too many events wait.
        """
        thread = self._thread()
        if (self._is_buffered and thread.waiting < MAX_WAITING) or thread.is_current:
            thread.record(events)
            return DONE
        durable = _promise()
        thread.record(events, durable)
        return durable

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Do asynchronous work with the store, in the recorder's event loop.

        Closing waits for it for a while, and cancels it then.

        Args:
            work: What to do; it is given the store's writer.

        Raises:
            RuntimeError: The connection is closed.
        """
        return self._thread().run(work)

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until what was recorded before is durable, and return whether it is.

        Args:
            seconds: How long at most; None: until it is so.
        """
        return not wait([self._flushed()], seconds).not_done

    def close(self) -> None:
        """Make durable what waits, and end. What is recorded afterwards is dropped, and logged."""
        self._is_closed = True
        self._threads[-1].close()
        _open.discard(self)

    def _flushed(self) -> Future[None]:
        durable = _promise()
        self._thread().record((), durable)
        return durable

    def _thread(self) -> RecorderThread:
        """Return this process's recorder: no thread of the parent's runs in a forked one."""
        thread = self._threads[-1]
        if thread.is_inherited and not self._is_closed:
            with self._lock:
                if self._threads[-1].is_inherited:
                    self._start_anew()
            thread = self._threads[-1]
        return thread

    def _start_anew(self) -> None:
        try:
            self._threads.append(self._start())
        except Exception as error:
            # At the end of the interpreter, for example, no thread can be started any more.
            log.error("recorder_not_started", error=error_location(error))
            self._is_closed = True
            self._threads[-1].begin_to_close()


def _promise() -> Future[None]:
    durable: Future[None] = Future()
    durable.set_running_or_notify_cancel()  # so that nobody who waits for it can cancel it
    return durable


_open: set[Connection] = set()


def _flush_all() -> None:
    """Make durable what waits: a process that was forked ends without the rest."""
    of_this_process = [each for each in list(_open) if not each._threads[-1].is_inherited]
    wait([each._flushed() for each in of_this_process], CLOSING_SECONDS)


def _close_all() -> None:
    # All at once: a store that is away keeps each waiting.
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
        # Noted here once: to ask at each event which process this is would be a system call.
        connection._threads[-1].is_inherited = True


# A forked process may end after the first of these; threads of the program record until the last.
threading._register_atexit(_flush_all)  # type: ignore[attr-defined]
atexit.register(_close_all)
# What a thread is about, importing a module for example, stays half done in a forked process.
os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
