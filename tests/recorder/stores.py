"""A store that tests make fail, hang or crash."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tracer.errors import StoreUnavailable
from tracer.records import Lease, Run
from tracer.records.events import Event
from tracer.store import Erasure, Refusal, TraceWriter, WriteAnswer

PLENTY_SECONDS = 60.0


class CommandedStore(TraceWriter):
    """Keeps each batch that it is given, once it may."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.attempts = 0
        self.down = False
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.reached = asyncio.Event()
        """Set whenever a write has come in."""
        self.grew = asyncio.Condition()
        self.breaks_on: Callable[[Event], bool] = lambda event: False
        self.breaks_with: BaseException = RuntimeError("a payload: 4711")
        self.refuses: Callable[[Event], bool] = lambda event: False
        self.renewals: list[UUID] = []
        self.lease = timedelta(minutes=1)

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        self.attempts += 1
        self.reached.set()
        await self.may_write.wait()
        if self.down:
            raise StoreUnavailable()
        if any(self.breaks_on(event) for event in events):
            raise self.breaks_with
        refused = [
            Refusal(index, "run_deleted", "The run was deleted.")
            for index, event in enumerate(events)
            if self.refuses(event)
        ]
        self.batches.append([event for event in events if not self.refuses(event)])
        async with self.grew:
            self.grew.notify_all()
        return WriteAnswer(len(events) - len(refused), refused)

    async def holds(self, wanted: Sequence[Event]) -> None:
        """Return when every wanted event has been written."""
        async with asyncio.timeout(PLENTY_SECONDS), self.grew:
            await self.grew.wait_for(lambda: all(event in self.events for event in wanted))

    async def renew(self, recorder_id: UUID) -> Lease:
        self.renewals.append(recorder_id)
        async with self.grew:
            self.grew.notify_all()
        if self.down:
            raise StoreUnavailable()
        return Lease(recorder_id, datetime.now(UTC), self.lease)

    async def renewed(self, times: int) -> None:
        """Return when renewing was tried so many times."""
        async with asyncio.timeout(PLENTY_SECONDS), self.grew:
            await self.grew.wait_for(lambda: len(self.renewals) >= times)

    async def delete_run(self, root_plan_id: object, *, all_parts: bool = True) -> None:
        raise NotImplementedError

    async def delete_subject(self, subject: object) -> Erasure:
        raise NotImplementedError

    async def delete_session(self, session_id: object) -> Erasure:
        raise NotImplementedError

    async def write_spans(self, traces: object) -> WriteAnswer:
        raise NotImplementedError

    async def request_cancel(self, root_plan_id: object) -> Run:
        raise NotImplementedError
