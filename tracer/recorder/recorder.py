"""The recorder: makes events durable before the agent continues.

All events pass through one queue and one task. While a write runs, new events wait in the queue;
the next write sends them together (group commit). If the store fails or is slow, the same task puts
the events into the spool, from where the drainer sends them later. Events are idempotent and
independent of order, so writing an event twice does no harm.

Any thread may add to the queue (`submit`). The code takes no locks: a signal handler may interrupt
`submit` in any thread, and call it again. With a lock, the second call would wait forever for the
first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from math import inf
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from tracer.clock import Clock, steady_now, utc_now
from tracer.logs import get_logger
from tracer.recorder.delivery import (
    STORE_AWAY,
    Drainer,
    Heartbeat,
    LateWrite,
    RecorderCounts,
    error_location,
    failure,
)
from tracer.recorder.spool import Spool, SpoolFull, spool_failure
from tracer.records import IdSource, new_id
from tracer.records.events import Event, Stamp
from tracer.redaction import Redaction, standard_redaction
from tracer.redaction.events import redacted_events
from tracer.store import TraceWriter

log = get_logger(__name__)

PATIENCE_SECONDS = 0.25
"""How many seconds an event waits for the store before it is spooled, by default."""

BATCH_EVENTS = 1000
"""How many events one write sends; the events of one call are never divided."""

GATHER_SECONDS = 0.05
"""How long a queued event waits, so that later events join its batch. If a caller waits for the
event, it is recorded at once."""

MAX_QUEUED = 100_000
"""How many calls may be queued by default. The events of further calls are dropped, because the
queue would grow without limit if the disk hangs."""

CLOSING_SECONDS = 5.0
"""How many seconds closing tries to send the spooled events, by default."""


Durable = Future[None] | asyncio.Future[None]
"""A future that becomes done when events are durable or dropped."""


class _PendingCall(NamedTuple):
    """Queued events, and the caller that waits until they are durable."""

    events: Sequence[Event]
    since: float
    durable: Durable | None
    """None if no caller waits."""

    def resolve(self) -> None:
        """Wake the caller that waits for these events. Its task may have been cancelled."""
        if self.durable is not None and not self.durable.done():
            self.durable.set_result(None)


def promise() -> Future[None]:
    """Return a future that its callers cannot cancel."""
    durable: Future[None] = Future()
    durable.set_running_or_notify_cancel()
    return durable


class Recorder:
    """Records events as they happen, and never disturbs the recorded program.

    Use it as an async context manager, from one event loop. Events that are recorded outside of the
    context manager go to the spool. The next recorder sends them.
    """

    is_recording = True

    def __init__(
        self,
        writer: TraceWriter,
        spool: Spool,
        *,
        clock: Clock = steady_now,
        ids: IdSource = new_id,
        patience: float | None = None,
        closing_seconds: float = CLOSING_SECONDS,
        redaction: Redaction | None = None,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """Connect a store with a spool.

        Args:
            writer: The store.
            spool: Holds the events that the store does not accept in time. Closed with the
                recorder.
            clock: The source of event times.
            ids: Mints the recorder's id.
            patience: How many seconds an event waits for the store before it is spooled. None:
                `PATIENCE_SECONDS`.
            closing_seconds: How many seconds closing tries to send the spooled events.
            redaction: Masks secrets before events are spooled or sent. None: the standard rules.
            max_queued: How many calls may be queued. The events of further calls are dropped.
        """
        self.recorder_id = ids()
        self.clock = clock
        self.counts = RecorderCounts()
        self._writer = writer
        self.spool = spool
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._closing_seconds = closing_seconds
        self.redaction = redaction or standard_redaction()
        self._drainer = Drainer(writer, spool, self.counts)
        self._heartbeat = Heartbeat(writer, self.recorder_id, self._drainer.outage)
        self._max_queued = max_queued
        self._queue: deque[_PendingCall] = deque()
        self._batch: Sequence[_PendingCall] = ()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._is_open = False
        self._has_ended = False
        """Whether the queue is no longer written."""
        self._is_woken = False
        self._is_hurried = False
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._drainer = Drainer(self._writer, self.spool, self.counts)
        self._heartbeat = Heartbeat(self._writer, self.recorder_id, self._drainer.outage)
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_open, self._has_ended = True, False
        self._is_woken = self._is_hurried = False
        self._writing = asyncio.create_task(self._write_queue(), name="tracer-recorder")
        self._drainer.start()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the queued events, and send spooled events for a while.

        The rest stays in the spool.

        Raises only `CancelledError`. If the task is cancelled, sending stops early, but no event is
        lost.
        """
        closing = asyncio.create_task(self._close(), name="tracer-recorder-closing")
        cancellation = None
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError as interruption:
                cancellation = interruption
                self._drainer.cut_short()
        if cancellation is not None:
            raise cancellation

    def stamp(self) -> Stamp:
        """Return the time and the recorder's id, for an event that happens now."""
        return {"at": self.clock(), "recorder_id": self.recorder_id}

    async def record(self, *events: Event) -> None:
        """Make events durable: committed, or fsynced to the spool if the store does not answer.

        Never raises, even if store and disk fail: events that cannot be stored are logged with
        their ids, and counted. If the caller is cancelled, its events are recorded nevertheless.

        Args:
            events: The events, which are written together.
        """
        if self._is_open:
            # Without `submit`, which wakes the loop from another thread: that takes 0.1 ms more.
            durable = asyncio.get_running_loop().create_future()
            self._queue.append(_PendingCall(events, monotonic(), durable))
            self._changed.set()
            await durable
        elif redacted := self._redacted(events):
            await self._spool_events(redacted)

    @property
    def waiting(self) -> int:
        """The number of queued calls whose events are not durable yet."""
        return len(self._queue) + len(self._batch)

    def submit(self, events: Sequence[Event], durable: Future[None] | None = None) -> None:
        """Queue events and return at once. Any thread may call this while the recorder is open.

        Args:
            events: The events.
            durable: A future that becomes done when the events are durable or dropped.
        """
        call = _PendingCall(events, monotonic(), durable)
        if len(self._queue) >= self._max_queued:
            self.drop(call.events, durable, "too_many_events_wait")
            return
        self._queue.append(call)
        self._wake(at_once=durable is not None or len(self._queue) >= BATCH_EVENTS)
        if self._has_ended:
            for each in self._take(inf):
                self.drop(each.events, each.durable, "recorder_ended")

    def drop(self, events: Sequence[Event], durable: Durable | None, reason: str) -> None:
        """Count and log that events are lost, and release the caller that waits for them."""
        if events:
            self.counts.note_drop(events, reason)
        _PendingCall(events, monotonic(), durable).resolve()

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

    def _redacted(self, events: Sequence[Event]) -> Sequence[Event]:
        try:
            return redacted_events(events, self.redaction)
        except Exception as error:
            self.counts.note_drop(events, f"masking failed: {error_location(error)}")
            return ()

    async def _close(self) -> None:
        self._is_open = False
        self._changed.set()
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._drainer.finish(self._closing_seconds)
        await self._heartbeat.stop()
        try:
            await self.spool.close()
        except Exception as error:
            log.error("spool_close_failed", error=error_location(error))
        log.info("recorder_closed", recorder_id=str(self.recorder_id), **asdict(self.counts))

    async def _write_queue(self) -> None:
        try:
            while await self._wait_for_calls():
                self._batch = self._take(BATCH_EVENTS)
                since = next((each.since for each in self._batch if each.durable), monotonic())
                events = self._redacted([event for each in self._batch for event in each.events])
                if events:
                    await self._make_durable(events, since)
                    self._heartbeat.start()
                self._resolve_batch()
        except Exception as error:
            log.error("recorder_failed", error=error_location(error))
        finally:
            # The recorder was closed or failed, or the task was cancelled as `asyncio.run` does.
            self._is_open, self._has_ended = False, True
            self._batch = [*self._batch, *self._take(inf)]
            if events := self._redacted([event for each in self._batch for event in each.events]):
                await self._spool_events(events)
            self._resolve_batch()

    async def _wait_for_calls(self) -> bool:
        """Wait for queued calls. Return False if the recorder is closed, and none are left."""
        while not self._queue:
            if not self._is_open:
                return False
            await self._changed.wait()
            self._changed.clear()
        # Reset before the batch is taken, so that a later call wakes this task again.
        self._is_woken = self._is_hurried = False
        return True

    def _take(self, size: float) -> list[_PendingCall]:
        """Take calls with about `size` events from the queue, in order."""
        batch: list[_PendingCall] = []
        with suppress(IndexError):
            while size > 0:
                batch.append(self._queue.popleft())
                size -= max(len(batch[-1].events), 1)
        return batch

    def _resolve_batch(self) -> None:
        batch, self._batch = self._batch, ()
        for each in batch:
            each.resolve()

    async def _make_durable(self, events: Sequence[Event], since: float) -> None:
        if not self._drainer.store_answers:
            await self._spool_events(events)
            return
        write = asyncio.create_task(self._writer.write(events))
        waited = monotonic() - since
        try:
            await asyncio.wait({write}, timeout=max(self._patience - waited, 0))
        except asyncio.CancelledError:
            write.cancel()
            raise
        if not write.done():
            # Not logged, because a slow answer is not an outage. The drainer logs failed writes.
            self.counts.write_failures += 1
            spool_ids = await self._spool_events(events)
            self._drainer.store_failed(LateWrite(write, events, spool_ids))
        elif (error := failure(write)) is not None:
            self.counts.write_failures += 1
            await self._spool_events(events)
            if isinstance(error, STORE_AWAY):
                await self._drainer.outage.note_failure(error)
            self._drainer.store_failed()
        else:
            await self._drainer.outage.note_answer()
            self.counts.note_answer(events, write.result())

    async def _spool_events(self, events: Sequence[Event]) -> Sequence[UUID]:
        """Append events to the spool and return their ids there.

        Count the events that do not fit.
        """
        try:
            appended = await self.spool.append(events)
        except Exception as error:
            reason = spool_failure(self.spool.path, error_location(error))
            self.counts.note_drop(events, f"the spool failed: {reason}")
            return []
        self.counts.spooled += len(appended.ids)
        for event, problem in appended.rejected:
            reason = str(problem) if isinstance(problem, SpoolFull) else error_location(problem)
            self.counts.note_drop([event], f"not spooled: {reason}")
        self._drainer.wake()
        return appended.ids


# --- A replacement for the recorder, for programs that record nothing.


class Unrecorded:
    """Stamps events as a `Recorder` does, and discards them.

    It opens no file and starts no task.
    """

    is_recording = False

    def __init__(self) -> None:
        self._recorder_id = new_id()

    def stamp(self) -> Stamp:
        """Return the fields that a recorder sets on each event."""
        return {"at": utc_now(), "recorder_id": self._recorder_id}

    async def record(self, *events: Event) -> None:
        """Discard the events."""
