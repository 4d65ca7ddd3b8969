"""The drainer: carries spooled events to the store once it answers again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from tracer.logs import get_logger
from tracer.recorder.counts import RecorderCounts, error_place
from tracer.recorder.outage import STORE_AWAY, Outage, failure
from tracer.recorder.spool import Spool
from tracer.records.events import Event
from tracer.store import TraceWriter, WriteAnswer

log = get_logger(__name__)

BATCH_EVENTS = 500
"""How many events go to the store at once."""

WRITE_SECONDS = 30.0
"""When a write that has not answered is given up and tried again later."""

ABANDONED_SECONDS = 1.0
"""How long closing waits for cancelled writes, so that the store can clean up after them."""


class TryLater(Exception):
    """The store or the spool cannot be used now."""


@dataclass(frozen=True)
class LateWrite:
    """A write that had not answered when its events were spooled."""

    task: asyncio.Task[WriteAnswer]
    events: Sequence[Event]
    spool_ids: Sequence[UUID]
    """Where the same events are in the spool."""


class Drainer:
    """Writes what is in the spool, oldest first, with growing pauses while the store is away."""

    def __init__(self, writer: TraceWriter, spool: Spool, counts: RecorderCounts) -> None:
        """Connect a spool with a store.

        Args:
            writer: The store.
            spool: What may hold events, a dead process's among them.
            counts: Told what became of each event.
        """
        self.store_answers = True
        """Whether the store answered last time; while it does not, events go to the spool."""
        self.outage = Outage(spool)
        """Logs when the store is away, for the recorder and its lease, too."""
        self._writer = writer
        self._spool = spool
        self._counts = counts
        self._late: deque[LateWrite] = deque()
        self._running: asyncio.Task[None] | None = None
        self._limit = BATCH_EVENTS
        self._skip = 0
        self._passes = False
        self._work = asyncio.Event()
        self._work.set()
        self._closing = asyncio.Event()
        self._hurry = asyncio.Event()

    def store_failed(self, late: LateWrite | None = None) -> None:
        """Take note that the store failed, and that what it should have stored is spooled.

        Args:
            late: The write, where it is still under way.
        """
        if late is not None:
            self._late.append(late)
        self.store_answers = False
        self._work.set()

    def wake(self) -> None:
        """Take note that there is something in the spool."""
        self._work.set()

    def start(self) -> None:
        """Drain in the background whenever there is something to drain, until `finish`."""
        self._running = asyncio.create_task(self._run(), name="tracer-drainer")

    async def finish(self, seconds: float) -> None:
        """Drain for the last time, for at most `seconds`; the rest stays in the spool."""
        self._closing.set()
        self._work.set()
        if self._running is None:
            return
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            {self._running, hurry}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        given_up = {self._running, hurry, *(late.task for late in self._late)}
        for task in given_up:
            _abandon(task)
        await asyncio.wait(given_up, timeout=ABANDONED_SECONDS)

    def hurry(self) -> None:
        """Let `finish` end at once."""
        self._hurry.set()

    async def _run(self) -> None:
        await self._report_other_spools()
        try:
            while self._work.is_set() or not self._closing.is_set():
                await self._work.wait()
                self._work.clear()
                more = True
                while more:
                    more = await self._retrying()(self.drain_batch)
        except TryLater:
            await self.outage.log_left_events()  # the recorder closes
        except Exception as error:
            log.error("drainer_failed", error=error_place(error))
            self.store_answers = True

    async def _report_other_spools(self) -> None:
        """Log one line if events of the same address wait that were recorded with another key."""
        try:
            others = await self._spool.find_others()
        except Exception as error:
            log.warning("spools_not_listed", error=error_place(error))
            return
        if others and (destination := self._spool.destination) is not None:
            log.warning(
                "events_wait_in_other_spools",
                address=destination.address,
                waiting_events=sum(each.events for each in others),
                files=[each.path.name for each in others[:10]],
                what_to_do="They were recorded with another key, which may be of another project, "
                "so they are not sent with this one. Run `tracer spool list`, then "
                "`tracer spool send FILE` or `tracer spool discard FILE`.",
            )

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            sleep=self._pause,
            stop=lambda _: self._closing.is_set(),
            wait=wait_random_exponential(multiplier=0.2, min=0.02, max=10),
            retry=retry_if_exception_type(TryLater),
            reraise=True,
        )

    async def _pause(self, seconds: float) -> None:
        """Sleep, unless there is no time left to sleep."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def drain_batch(self) -> bool:
        """Write the oldest spooled events, and return whether there may be more.

        Raises:
            TryLater: The store or the spool cannot be used now.
        """
        await self._settle_late()
        try:
            held = await self._spool.oldest(self._limit, self._skip)
        except Exception as error:
            log.error("spool_unreadable", error=error_place(error))
            held, self._skip = [], 0
        if not held:
            passed_over, self._skip, self._passes = self._skip, 0, False
            if passed_over:
                raise TryLater
            # With nothing to try the store with, the next event has to.
            self.store_answers = True
            return False
        try:
            await self._store(held)
        except TryLater:
            # Either the store is away, or it breaks on one event, and those after it pass.
            if self._limit == 1:
                self._skip += 1
            self._limit = 1
            raise
        if self._limit == 1 and self._skip and not self._passes:
            # It was away: what was passed over is the oldest. Or it was not: then we know now.
            self._skip, self._passes = 0, True
        else:
            self._limit = BATCH_EVENTS
        return True

    async def _store(self, held: Sequence[tuple[UUID, Event | None]]) -> None:
        events = [event for _, event in held if event is not None]
        answer = WriteAnswer(0)
        try:
            if events:
                answer = await self._write(events)
        except TryLater:
            raise
        except Exception as error:
            if len(held) > 1:
                for one in held:
                    await self._store([one])
                return
            self._counts.note_drop(events, error_place(error))
            await self._forget([spool_id for spool_id, _ in held])
            return
        self.store_answers = self.store_answers or bool(events)
        await self._forget([spool_id for spool_id, _ in held])
        if events:
            await self.outage.note_answer()
        self._counts.drained += len(events)
        self._counts.note_answer(events, answer)
        if unreadable := len(held) - len(events):
            self._counts.dropped += unreadable
            log.error("events_dropped", reason="unreadable in the spool", events=unreadable)

    async def _write(self, events: Sequence[Event]) -> WriteAnswer:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                return await self._writer.write(events)
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            self._counts.write_failures += 1
            # A cancellation that nobody asked for is the store's failure too.
            if isinstance(error, (*STORE_AWAY, asyncio.CancelledError)):
                await self.outage.note_failure(error)
                raise TryLater from error
            raise

    async def _forget(self, spool_ids: Sequence[UUID]) -> int:
        """Take events out of the spool, and return how many of them were in it."""
        try:
            return await self._spool.remove(spool_ids)
        except Exception as error:
            log.error("spool_unwritable", error=error_place(error))
            raise TryLater from error

    async def _settle_late(self) -> None:
        while self._late:
            late = self._late[0]
            await asyncio.wait({late.task}, timeout=WRITE_SECONDS)
            self._late.popleft()
            if not late.task.done():
                _abandon(late.task)
                await self.outage.note_failure(TimeoutError())
                raise TryLater
            if (error := failure(late.task)) is not None:
                if isinstance(error, STORE_AWAY):
                    await self.outage.note_failure(error)
                continue
            self.store_answers = True
            await self.outage.note_answer()
            if drained := await self._forget(late.spool_ids):
                # Else they were drained before it was known that they are late, and counted.
                self._counts.drained += drained
                self._counts.note_answer(late.events, late.task.result())


def _abandon(task: asyncio.Task[object]) -> None:
    """Cancel a task, if it still runs; how it ends does not matter."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
