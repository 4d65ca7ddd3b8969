"""The connection that `tracer.connect()` returns if `TRACER_DISABLED` is set."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tracer.client.connection import DONE
from tracer.client.tracing import Tracing
from tracer.recorder.counts import RecorderCounts
from tracer.recorder.unrecorded import Unrecorded
from tracer.records.events import Event, Stamp
from tracer.records.ids import new_id
from tracer.store import TraceWriter

Answer = TypeVar("Answer")


class DisabledTracing(Tracing):
    """Has the methods of `Tracing`, but records nothing.

    It starts no thread, opens no file and sends no request.
    """

    is_disabled = True

    def __init__(self) -> None:
        self.ids = new_id
        self.open_blocks = {}
        self._unrecorded = Unrecorded()

    @property
    def counts(self) -> RecorderCounts:
        """Counts that are always 0."""
        return RecorderCounts()

    @property
    def waiting(self) -> int:
        """Return 0."""
        return 0

    def stamp(self) -> Stamp:
        """Return the time and the recorder id that an event needs."""
        return self._unrecorded.stamp()

    def record(self, *events: Event) -> Future[None]:
        """Discard the events."""
        return DONE

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Raise `RuntimeError`, because the connection has no store."""
        raise RuntimeError(
            "This connection has no store, because TRACER_DISABLED is set. Unset it to use a store."
        )

    def flush(self, seconds: float | None = None) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing."""
