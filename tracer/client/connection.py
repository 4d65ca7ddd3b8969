"""A connection to a store, from any thread and any event loop of a program that is not ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from tracer.client.recorder_thread import OpenSpool, OpenWriter, RecorderThread
from tracer.clock import Clock, utc_now
from tracer.events import Event
from tracer.ids import IdSource, new_id
from tracer.recorder.recorder import Stamp
from tracer.store import TraceWriter

Answer = TypeVar("Answer")

MAX_WAITING = 10_000
"""How many events of a buffered connection may wait before recording waits, too."""

DONE: Future[None] = Future()
DONE.set_result(None)


class Connection:
    """Records to one store, and never raises for it. Close it at the end, or use it with `with`.

    The end of the interpreter closes it, too. In a forked process it begins anew at its first use:
    what waits goes on in the parent.
    """

    def __init__(
        self,
        open_writer: OpenWriter,
        open_spool: OpenSpool,
        *,
        buffered: bool = False,
        clock: Clock = utc_now,
        ids: IdSource = new_id,
    ) -> None:
        """Start the recorder.

        Args:
            open_writer: Gives the store, in the recorder's event loop.
            open_spool: Gives where events wait that the store does not take.
            buffered: Whether `record` leaves nothing to wait for: what a process recorded in its
                last moments is then lost when it is killed.
            clock: Tells when an event happened.
            ids: Mints ids.

        Raises:
            Exception: Whatever `open_writer` raises.
        """
        self.ids = ids
        self._start: Callable[[], RecorderThread] = partial(
            RecorderThread, open_writer, open_spool, clock, ids
        )
        self._is_buffered = buffered
        self._is_closed = False
        self._lock = threading.Lock()
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

    def stamp(self) -> Stamp:
        """Return what every event starts with: the time and the recorder's id."""
        return self._thread().recorder.stamp()

    def record(self, *events: Event) -> Future[None]:
        """Record events, and return what is done once they are durable; it never fails.

        Of a buffered connection it is done at once, unless too many events wait.
        """
        thread = self._thread()
        durable = thread.record(events)
        return DONE if self._is_buffered and thread.waiting < MAX_WAITING else durable

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Do asynchronous work with the store, in the recorder's event loop.

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
        return not wait([self._thread().flush()], seconds).not_done

    def close(self) -> None:
        """Make durable what waits, and end. What is recorded afterwards is dropped, and logged."""
        self._is_closed = True
        self._thread().close()
        _open.discard(self)

    def _thread(self) -> RecorderThread:
        """Return this process's recorder: no thread of the parent's runs in a forked one."""
        thread = self._threads[-1]
        if thread.process_id != os.getpid():
            with self._lock:
                if self._threads[-1].process_id != os.getpid():
                    # The others are kept: to collect an event loop is to close its files.
                    self._threads.append(self._start())
                    if self._is_closed:
                        self._threads[-1].close()
                thread = self._threads[-1]
        return thread


_open: set[Connection] = set()


def _close_all() -> None:
    for connection in list(_open):
        connection.close()


# Not `atexit`, which comes after the executors have ended that a recorder needs for its spool.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
