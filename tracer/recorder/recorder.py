"""The recorder: makes events durable before the agent goes on.

All events go through one queue and one task. While a write is under way, what is recorded
meanwhile gathers, and goes together in the next one (group commit). When the store fails or is
slow, the same task puts the events into the spool instead, and the drainer brings them to the
store later. Events are idempotent and order-free, so writing one twice does no harm.
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
from tracer.recorder.counts import RecorderCounts, error_place
from tracer.recorder.drainer import Drainer, LateWrite
from tracer.recorder.heartbeat import LeaseKeeper
from tracer.recorder.outage import STORE_AWAY, failure
from tracer.recorder.spool import Spool, SpoolFull
from tracer.records.events import Event
from tracer.records.ids import IdSource, new_id
from tracer.redaction import Redaction, standard_redaction
from tracer.redaction.events import redacted_events
from tracer.store import TraceWriter

log = get_logger(__name__)

PATIENCE_SECONDS = 0.25
"""How long an event waits for the store before it is spooled, unless told otherwise."""

BATCH_EVENTS = 1000
"""How many events go to the store at once; those of one call are not divided."""

CLOSING_SECONDS = 5.0
"""How long closing tries to send the spooled events to the store, by default."""


class Stamp(TypedDict):
    """What a recorder puts on each of its events."""

    at: datetime
    recorder_id: UUID


@dataclass(frozen=True, eq=False)
class _Waiting:
    """The events of one `record` call, and whom to tell when they are durable."""

    events: tuple[Event, ...]
    since: float
    durable: asyncio.Future[None]

    def tell(self) -> None:
        """Let the call return, if it still waits: its task may have been cancelled."""
        if not self.durable.done():
            self.durable.set_result(None)


class Recorder:
    """Records events as they happen; never in the way of what it records.

    Use it as an async context manager, from one event loop. Outside of that, events go to the
    spool, for the next recorder to drain.
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
        """Connect a store and the spool that stands in for it.

        Args:
            writer: The store.
            spool: Where events wait that the store does not take; closed with the recorder.
            clock: Tells when an event happened.
            ids: Mints the recorder's id.
            patience: How many seconds an event waits for the store before it is spooled; None:
                `PATIENCE_SECONDS`.
            closing_seconds: How many seconds closing tries to send the spooled events to the store.
            redaction: What masks secrets, before anything is spooled or sent; None: the standard.
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
        self._lease = LeaseKeeper(writer, self.recorder_id, self._drainer.outage)
        self._queue: deque[_Waiting] = deque()
        self._changed = asyncio.Event()
        self._is_open = False
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._drainer = Drainer(self._writer, self.spool, self.counts)
        self._lease = LeaseKeeper(self._writer, self.recorder_id, self._drainer.outage)
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
        """Write what waits and drain for a while; what is left stays in the spool.

        Raises nothing but a cancellation, which cuts the draining short and loses nothing.
        """
        closing = asyncio.create_task(self._close(), name="tracer-recorder-closing")
        cancellation = None
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError as interruption:
                cancellation = interruption
                self._drainer.hurry()
        if cancellation is not None:
            raise cancellation

    def stamp(self) -> Stamp:
        """Return what every event of this recorder starts with: the time and the recorder's id."""
        return {"at": self.clock(), "recorder_id": self.recorder_id}

    async def record(self, *events: Event) -> None:
        """Make events durable: committed, or fsynced to the spool when the store does not answer.

        Never raises, whatever store and disk do: what cannot be kept is logged with its ids and
        counted. When the caller is cancelled, its events are recorded all the same.

        Args:
            events: What happened; several are written together.
        """
        if not events:
            return
        try:
            events = tuple(redacted_events(events, self.redaction))
        except Exception as error:
            self.counts.note_drop(events, f"masking failed: {error_place(error)}")
            return
        if not self._is_open:
            await self._keep(events)
            return
        loop = asyncio.get_running_loop()
        waiting = _Waiting(events, loop.time(), loop.create_future())
        self._queue.append(waiting)
        self._changed.set()
        await waiting.durable

    async def _close(self) -> None:
        self._is_open = False
        self._changed.set()
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._drainer.finish(self._closing_seconds)
        await self._lease.end()
        try:
            await self.spool.close()
        except Exception as error:
            log.error("spool_close_failed", error=error_place(error))
        log.info("recorder_closed", recorder_id=str(self.recorder_id), **asdict(self.counts))

    async def _write_queue(self) -> None:
        try:
            while batch := await self._next_batch():
                await self._make_durable(batch)
                for waiting in batch:
                    self._queue.popleft()
                    waiting.tell()
                self._lease.begin()
        except Exception as error:
            log.error("recorder_failed", error=error_place(error))
        finally:
            # Closed; or cancelled from outside, as at the end of `asyncio.run`; or at fault.
            self._is_open = False
            left, self._queue = self._queue, deque()
            if left:
                await self._keep([event for waiting in left for event in waiting.events])
                for waiting in left:
                    waiting.tell()

    async def _next_batch(self) -> list[_Waiting]:
        """Return what waits, in the order of its coming; nothing when the recorder is closed."""
        while not self._queue:
            if not self._is_open:
                return []
            self._changed.clear()
            await self._changed.wait()
        batch: list[_Waiting] = []
        size = 0
        for waiting in self._queue:
            batch.append(waiting)
            size += len(waiting.events)
            if size >= BATCH_EVENTS:
                break
        return batch

    async def _make_durable(self, batch: Sequence[_Waiting]) -> None:
        events = [event for waiting in batch for event in waiting.events]
        if not self._drainer.store_answers:
            await self._keep(events)
            return
        write = asyncio.create_task(self._writer.write(events))
        waited = asyncio.get_running_loop().time() - batch[0].since
        try:
            await asyncio.wait({write}, timeout=max(self._patience - waited, 0))
        except asyncio.CancelledError:
            write.cancel()
            raise
        if not write.done():
            # Not logged: a slow answer is no outage. The drainer logs a write that fails.
            self.counts.write_failures += 1
            kept = await self._keep(events)
            self._drainer.store_failed(LateWrite(write, events, kept))
        elif (error := failure(write)) is not None:
            self.counts.write_failures += 1
            await self._keep(events)
            if isinstance(error, STORE_AWAY):
                await self._drainer.outage.note_failure(error)
            self._drainer.store_failed()
        else:
            await self._drainer.outage.note_answer()
            self.counts.note_answer(events, write.result())

    async def _keep(self, events: Sequence[Event]) -> Sequence[UUID]:
        """Put events into the spool and return their ids there; those left out are dropped."""
        try:
            appended = await self.spool.append(events)
        except Exception as error:
            self.counts.note_drop(events, f"the spool failed: {error_place(error)}")
            return []
        self.counts.spooled += len(appended.kept)
        for event, why in appended.left_out:
            reason = str(why) if isinstance(why, SpoolFull) else error_place(why)
            self.counts.note_drop([event], f"left out of the spool: {reason}")
        self._drainer.wake()
        return appended.kept
