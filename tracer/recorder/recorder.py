"""The recorder: makes events durable before the agent continues.

All events pass through one queue and one task. While a write runs, new events wait in the queue;
the next write sends them together (group commit). If the store fails or is slow, the same task puts
the events into the spool, from where the drainer sends them later. Events are idempotent and
independent of order, so writing an event twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from types import TracebackType
from typing import Self, TypedDict
from uuid import UUID

from tracer.clock import Clock, utc_now
from tracer.logs import get_logger
from tracer.recorder.counts import RecorderCounts, error_location
from tracer.recorder.drainer import Drainer, LateWrite
from tracer.recorder.heartbeat import Heartbeat
from tracer.recorder.outage import STORE_AWAY, failure
from tracer.recorder.spool import Spool, SpoolFull
from tracer.recorder.spool_files import spool_failure
from tracer.records.events import Event
from tracer.records.ids import IdSource, new_id
from tracer.redaction import Redaction, standard_redaction
from tracer.redaction.events import redacted_events
from tracer.store import TraceWriter

log = get_logger(__name__)

PATIENCE_SECONDS = 0.25
"""How many seconds an event waits for the store before it is spooled, by default."""

BATCH_EVENTS = 1000
"""How many events one write sends; the events of one call are never divided."""

CLOSING_SECONDS = 5.0
"""How many seconds closing tries to send the spooled events, by default."""


class Stamp(TypedDict):
    """The fields that a recorder sets on each of its events."""

    at: datetime
    recorder_id: UUID


@dataclass(frozen=True, eq=False)
class _PendingCall:
    """One call of `record` that waits until its events are durable."""

    events: tuple[Event, ...]
    since: float
    durable: asyncio.Future[None]

    def resolve(self) -> None:
        """Wake the call that waits for these events. Its task may have been cancelled."""
        if not self.durable.done():
            self.durable.set_result(None)


class Recorder:
    """Records events as they happen, and never disturbs the recorded program.

    Use it as an async context manager, from one event loop. Events that are recorded outside of the
    context manager go to the spool. The next recorder sends them.
    """

    def __init__(
        self,
        writer: TraceWriter,
        spool: Spool,
        *,
        clock: Clock = utc_now,
        ids: IdSource = new_id,
        patience: float | None = None,
        closing_seconds: float = CLOSING_SECONDS,
        redaction: Redaction | None = None,
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
        self._queue: deque[_PendingCall] = deque()
        self._changed = asyncio.Event()
        self._is_open = False
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._drainer = Drainer(self._writer, self.spool, self.counts)
        self._heartbeat = Heartbeat(self._writer, self.recorder_id, self._drainer.outage)
        self._changed = asyncio.Event()
        self._is_open = True
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
        if not events:
            return
        try:
            events = tuple(redacted_events(events, self.redaction))
        except Exception as error:
            self.counts.note_drop(events, f"masking failed: {error_location(error)}")
            return
        if not self._is_open:
            await self._spool_events(events)
            return
        loop = asyncio.get_running_loop()
        call = _PendingCall(events, loop.time(), loop.create_future())
        self._queue.append(call)
        self._changed.set()
        await call.durable

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
            while batch := await self._next_batch():
                await self._make_durable(batch)
                for call in batch:
                    self._queue.popleft()
                    call.resolve()
                self._heartbeat.start()
        except Exception as error:
            log.error("recorder_failed", error=error_location(error))
        finally:
            # The recorder was closed or failed, or the task was cancelled as `asyncio.run` does.
            self._is_open = False
            remaining, self._queue = self._queue, deque()
            if remaining:
                await self._spool_events([event for call in remaining for event in call.events])
                for call in remaining:
                    call.resolve()

    async def _next_batch(self) -> list[_PendingCall]:
        """Wait for `record` calls and return them in order; none if the recorder is closed."""
        while not self._queue:
            if not self._is_open:
                return []
            self._changed.clear()
            await self._changed.wait()
        batch: list[_PendingCall] = []
        size = 0
        for call in self._queue:
            batch.append(call)
            size += len(call.events)
            if size >= BATCH_EVENTS:
                break
        return batch

    async def _make_durable(self, batch: Sequence[_PendingCall]) -> None:
        events = [event for call in batch for event in call.events]
        if not self._drainer.store_answers:
            await self._spool_events(events)
            return
        write = asyncio.create_task(self._writer.write(events))
        waited = asyncio.get_running_loop().time() - batch[0].since
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
