"""Deliver events: counts, outages, the drainer of the spool, and heartbeats."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from traceback import extract_tb
from uuid import UUID

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.logs import get_logger
from tracer.recorder.spool import Spool, spool_failure
from tracer.records.events import (
    Event,
    PlanFinished,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
)
from tracer.store import TraceWriter, WriteAnswer

# --- The outcomes of recorded events: counts for metrics, and ids for the log.

log = get_logger(__name__)


@dataclass
class RecorderCounts:
    """The outcomes of a recorder's events since it was created."""

    stored: int = 0
    """Events that the store accepted, directly or from the spool."""
    refused: int = 0
    """Events that the store rejected; the log has the code of each."""
    spooled: int = 0
    """Events that were fsynced to the spool."""
    drained: int = 0
    """Events that left the spool because the store accepted or rejected them."""
    dropped: int = 0
    """Lost events: neither store nor spool could take them. The log has their ids."""
    write_failures: int = 0
    """Writes that failed or timed out."""

    def note_answer(self, events: Sequence[Event], answer: WriteAnswer) -> None:
        """Count the results of a write, and log each rejected event.

        Args:
            events: The events that were written.
            answer: The store's answer.
        """
        self.stored += answer.stored
        self.refused += len(answer.refused)
        for refusal in answer.refused:
            log.warning("event_refused", code=refusal.code, **ids_of([events[refusal.index]]))

    def note_drop(self, events: Sequence[Event], reason: str) -> None:
        """Count and log events that are lost.

        Args:
            events: The lost events.
            reason: Why the events are lost. Must not quote the events.
        """
        self.dropped += len(events)
        log.error("events_dropped", reason=reason, **ids_of(events))


def ids_of(events: Sequence[Event]) -> dict[str, object]:
    """Return log fields that identify events, without anything of their content."""
    return {
        "events": len(events),
        "event_types": sorted({event.type for event in events}),
        "root_plan_ids": sorted({str(event.root_plan_id) for event in events}),
        "record_ids": sorted({str(_record_id(event)) for event in events}),
    }


def error_location(error: BaseException) -> str:
    """Return an error's class and line. The message is left out, because it may quote a payload."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    frames = extract_tb(error.__traceback__)
    return f"{kind} at {frames[-1].filename}:{frames[-1].lineno}" if frames else kind


def _record_id(event: Event) -> UUID:
    match event:
        case PlanStarted() | PlanFinished():
            return event.plan_id
        case StepStarted() | StepFinished():
            return event.step_id
        case ThoughtStarted() | ThoughtRecorded():
            return event.think_act_id
        case _:
            return event.tool_call_id


# --- Log when a store becomes unavailable and when it is available again.


STORE_AWAY = (StoreUnavailable, SchemaOutOfDate, OSError)
"""Failures of the store and not of the events: the same write may succeed later."""


def failure(task: asyncio.Task[WriteAnswer]) -> BaseException | None:
    """Return the error of a finished write; None if the write succeeded."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


class Outage:
    """The state of one recorder's store.

    The recorder, the drainer and the heartbeat report failures and answers here, so that an outage
    is logged once.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._problems: set[str] = set()
        """The problems logged in this outage; empty if the store is available."""
        self._started = 0.0
        self._has_write_failed = False

    async def note_failure(self, error: BaseException, *, is_lease: bool = False) -> None:
        """Report that the store failed. Log it at the start of an outage.

        During an outage, each different problem of a write is logged once.
        """
        problem, what_to_do, address = _describe(error)
        is_new = not self._problems
        if not is_new and (is_lease or problem in self._problems):
            return
        # Before the first await, because a heartbeat and a write may fail at the same time.
        self._problems.add(problem)
        self._has_write_failed = self._has_write_failed or not is_lease
        if is_new:
            self._started = asyncio.get_running_loop().time()
        log.warning(
            "store_unavailable",
            **self._address(address),
            problem=problem,
            what_to_do=what_to_do,
            **await self._waiting(),
        )

    async def note_answer(self, *, is_lease: bool = False) -> None:
        """Report that the store answered. Log it at the end of an outage.

        A renewed lease does not end an outage in which writes failed.
        """
        if not self._problems or (is_lease and self._has_write_failed):
            return
        self._problems.clear()
        self._has_write_failed = False
        seconds = round(asyncio.get_running_loop().time() - self._started, 1)
        log.warning(
            "store_available_again",
            **self._address(),
            after_seconds=seconds,
            what_to_do="Nothing: the waiting events are being sent.",
            **await self._waiting(),
        )

    async def log_left_events(self) -> None:
        """Log that the recorder ends while events are still in the spool."""
        log.info(
            "events_left_in_spool",
            **self._address(),
            **await self._waiting(),
            what_to_do="Nothing: the next program with the same TRACER_HOME, address and key "
            "sends them.",
        )

    def _address(self, address: str | None = None) -> dict[str, object]:
        if self._spool.destination is not None:
            address = self._spool.destination.address
        return {} if address is None else {"address": address}

    async def _waiting(self) -> dict[str, object]:
        try:
            events: int | None = await self._spool.count()
        except Exception:  # failures of the spool are logged by `append`
            events = None
        return {"waiting_events": events, "waiting_in": str(self._spool.path)}


def _describe(error: BaseException) -> tuple[str, str, str | None]:
    """Return the problem, the remedy, and the store's address if the error contains an address."""
    match error:
        case StoreUnavailable():
            return error.problem, error.what_to_do, error.address
        case SchemaOutOfDate():
            return "the database's schema has another version", "Run `tracer migrate`.", None
        case TimeoutError():
            return "no answer in time", _CHECK, None
        case OSError(errno=int(code)):
            return os.strerror(code).lower(), _CHECK, None
        case OSError():
            return f"the connection failed ({type(error).__name__})", _CHECK, None
        case _:
            return "the write was cancelled", _CHECK, None


_CHECK = "Check that the store runs."


# --- The drainer: sends spooled events to the store once it is available again.


BATCH_EVENTS = 500
"""How many events one write sends."""

WRITE_SECONDS = 30.0
"""The timeout of a write, which is then retried later."""

ABANDONED_SECONDS = 1.0
"""How many seconds closing waits for cancelled writes, so that the store can clean up."""


class TryLater(Exception):
    """The store or the spool cannot be used now."""


@dataclass(frozen=True)
class LateWrite:
    """A write that was still running when its events were spooled."""

    task: asyncio.Task[WriteAnswer]
    events: Sequence[Event]
    spool_ids: Sequence[UUID]
    """The ids of the same events in the spool."""


class Drainer:
    """Writes the spooled events, oldest first, with a growing backoff while the store fails."""

    def __init__(self, writer: TraceWriter, spool: Spool, counts: RecorderCounts) -> None:
        """Connect a spool with a store.

        Args:
            writer: The store.
            spool: The spool, which may also contain events of a dead process.
            counts: Counts the outcome of each event.
        """
        self.store_answers = True
        """Whether the last write succeeded. If not, new events go to the spool."""
        self.outage = Outage(spool)
        """Logs outages of the store. The recorder and the heartbeat also report to it."""
        self._writer = writer
        self._spool = spool
        self._counts = counts
        self._late: deque[LateWrite] = deque()
        self._running: asyncio.Task[None] | None = None
        self._limit = BATCH_EVENTS
        """How many events the next write sends. After a failure this is 1, to find out which event
        fails."""
        self._skip = 0
        """How many of the oldest events to skip, because the store failed on each of them."""
        self._passes = False
        """Whether the store has accepted an event that is newer than the skipped events. The
        skipped events are then retried once."""
        self._work = asyncio.Event()
        self._work.set()
        self._closing = asyncio.Event()
        self._cut_short = asyncio.Event()

    def store_failed(self, late: LateWrite | None = None) -> None:
        """Report that a write of the recorder failed, and that its events are spooled.

        Args:
            late: The write, if it is still running.
        """
        if late is not None:
            self._late.append(late)
        self.store_answers = False
        self._work.set()

    def wake(self) -> None:
        """Report that there are events in the spool."""
        self._work.set()

    def start(self) -> None:
        """Drain in the background whenever there are events, until `finish`."""
        self._running = asyncio.create_task(self._run(), name="tracer-drainer")

    async def finish(self, seconds: float) -> None:
        """Drain for at most `seconds` more, then stop. Remaining events stay in the spool."""
        self._closing.set()
        self._work.set()
        if self._running is None:
            return
        cut_short = asyncio.create_task(self._cut_short.wait())
        await asyncio.wait(
            {self._running, cut_short}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        given_up = {self._running, cut_short, *(late.task for late in self._late)}
        for task in given_up:
            _abandon(task)
        await asyncio.wait(given_up, timeout=ABANDONED_SECONDS)

    def cut_short(self) -> None:
        """Make a running `finish` return at once."""
        self._cut_short.set()

    async def _run(self) -> None:
        await self._report_other_spools()
        try:
            while self._work.is_set() or not self._closing.is_set():
                await self._work.wait()
                self._work.clear()
                more = True
                while more:
                    more = await self._retry_policy()(self.drain_batch)
        except TryLater:
            await self.outage.log_left_events()  # the recorder is closing
        except Exception as error:
            log.error("drainer_failed", error=error_location(error))
            self.store_answers = True

    async def _report_other_spools(self) -> None:
        """Log a warning if other spool files contain events for the same address.

        These events were recorded with another key, so they are not sent with the current key.
        """
        try:
            others = await self._spool.find_others()
        except Exception as error:
            log.warning("spools_not_listed", error=error_location(error))
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

    def _retry_policy(self) -> AsyncRetrying:
        return AsyncRetrying(
            sleep=self._pause,
            stop=lambda _: self._closing.is_set(),
            wait=wait_random_exponential(multiplier=0.2, min=0.02, max=10),
            retry=retry_if_exception_type(TryLater),
            reraise=True,
        )

    async def _pause(self, seconds: float) -> None:
        """Sleep for `seconds`, or until `finish` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def drain_batch(self) -> bool:
        """Write the oldest spooled events. Return whether there may be more.

        Raises:
            TryLater: The store or the spool cannot be used now.
        """
        await self._settle_late()
        try:
            batch = await self._spool.oldest(self._limit, self._skip)
        except Exception as error:
            reason = spool_failure(self._spool.path, error_location(error))
            log.error("spool_unreadable", error=reason)
            batch, self._skip = [], 0
        if not batch:
            skipped, self._skip, self._passes = self._skip, 0, False
            if skipped:
                raise TryLater
            # No event is left to try the store with, so the next recorded event does that.
            self.store_answers = True
            return False
        try:
            await self._store(batch)
        except TryLater:
            # Either the store is unavailable, or it fails on one event. So events are sent one at a
            # time, and one that fails alone is skipped.
            if self._limit == 1:
                self._skip += 1
            self._limit = 1
            raise
        if self._limit == 1 and self._skip and not self._passes:
            # A later event was accepted. Retry the skipped ones once: the store may have been
            # unavailable for them.
            self._skip, self._passes = 0, True
        else:
            self._limit = BATCH_EVENTS
        return True

    async def _store(self, batch: Sequence[tuple[UUID, Event | None]]) -> None:
        events = [event for _, event in batch if event is not None]
        answer = WriteAnswer(0)
        try:
            if events:
                answer = await self._write(events)
        except TryLater:
            raise
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._store([one])
                return
            self._counts.note_drop(events, error_location(error))
            await self._remove([spool_id for spool_id, _ in batch])
            return
        self.store_answers = self.store_answers or bool(events)
        await self._remove([spool_id for spool_id, _ in batch])
        if events:
            await self.outage.note_answer()
        self._counts.drained += len(events)
        self._counts.note_answer(events, answer)
        if unreadable := len(batch) - len(events):
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
            # A cancellation that we did not request is a failure of the store, too.
            if isinstance(error, (*STORE_AWAY, asyncio.CancelledError)):
                await self.outage.note_failure(error)
                raise TryLater from error
            raise

    async def _remove(self, spool_ids: Sequence[UUID]) -> int:
        """Remove events from the spool. Return how many of them were in it."""
        try:
            return await self._spool.remove(spool_ids)
        except Exception as error:
            log.error("spool_unwritable", error=error_location(error))
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
            if drained := await self._remove(late.spool_ids):
                # 0 if the events were drained, and counted, before the write was reported as late.
                self._counts.drained += drained
                self._counts.note_answer(late.events, late.task.result())


def _abandon(task: asyncio.Task[object]) -> None:
    """Cancel a task if it still runs, and ignore its result."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()


# --- Heartbeats: renew a recorder's lease at regular intervals, independently of its events.


ANSWER_SECONDS = 10.0
"""The timeout of one renewal."""

FIRST_PAUSE_SECONDS = 10.0
"""The interval between heartbeats until the store has returned the length of a lease."""


class Heartbeat:
    """Renews a recorder's lease at regular intervals.

    If a renewal fails, the next one is sent after the usual interval, not earlier.
    """

    def __init__(self, writer: TraceWriter, recorder_id: UUID, outage: Outage) -> None:
        """Prepare heartbeats; the first one is sent after `start`."""
        self._outage = outage
        self._writer = writer
        self._recorder_id = recorder_id
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send heartbeats from now on, if not started already."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tracer-lease")

    async def stop(self) -> None:
        """Stop sending heartbeats.

        Records that are still open are abandoned when the lease expires.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=ANSWER_SECONDS)

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        is_logged = False
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    lease = await self._writer.renew(self._recorder_id)
                pause = lease.renew_after.total_seconds()
                is_logged = False
                await self._outage.note_answer(is_lease=True)
            except STORE_AWAY as error:
                await self._outage.note_failure(error, is_lease=True)
            except Exception as error:  # recording must never stop the agent
                if not is_logged:
                    log.warning("lease_not_renewed", error=error_location(error))
                is_logged = True
            # The interval stays the same after a failure, so that recorders that lost a server at
            # the same time do not all return at the same time.
            await asyncio.sleep(pause)
