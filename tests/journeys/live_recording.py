"""Records a run at a steady rate while a browser shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from uuid import UUID

from tests.sample_runs import START
from tracer.records import Status, new_id
from tracer.records.events import Event, PlannedStep, PlanStarted, ToolCallFinished, ToolCallStarted
from tracer.storage.postgres import (
    Notify,
    ProjectPool,
    RunWatch,
    WriterOptions,
    notifications,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import TraceWriter

EVENTS_A_SECOND = 100


@dataclass
class LiveRecording:
    """A root plan with one step, whose agent calls one tool after the other."""

    writer: TraceWriter
    root: UUID = field(default_factory=new_id)
    step: UUID = field(default_factory=new_id)
    calls: list[UUID] = field(default_factory=list)

    def ids(self, call: UUID | None = None) -> dict[str, Any]:
        """Return the common fields of events."""
        said = {"at": START, "root_plan_id": self.root, "plan_id": self.root}
        return said if call is None else {**said, "step_id": self.step, "tool_call_id": call}

    async def begin(self, calls: int = 0) -> None:
        """Start the run, with so many calls that have ended."""
        started = PlanStarted(**self.ids(), title="Live", steps=(PlannedStep(step_id=self.step),))
        await self.write(started)
        for _ in range(calls):
            await self.write(*self.call())

    def call(self) -> list[Event]:
        """Return the start and the end of one more call."""
        call = new_id()
        self.calls.append(call)
        ids, position = self.ids(call), len(self.calls)
        return [
            ToolCallStarted(**ids, name="measure", arguments="{}", position=position),
            ToolCallFinished(**ids, status=Status.SUCCEEDED, result=f"number {position}"),
        ]

    def attempt(self, number: int) -> Event:
        """Return another attempt at one of the calls: a change that adds no record."""
        call = self.calls[number % len(self.calls)]
        return ToolCallStarted(**self.ids(call), name="measure", attempt=number + 1)

    async def write(self, *events: Event) -> None:
        """Write events, all of which the store takes."""
        answer = await self.writer.write(events)
        assert answer.refused == []

    async def go_on(self, seconds: float) -> None:
        """Record calls for so long, one event at a time, at the rate that is to be kept."""
        await self._steadily(
            [event for _ in range(int(seconds * EVENTS_A_SECOND / 2)) for event in self.call()]
        )

    async def try_again(self, seconds: float, attempts: int = 0) -> int:
        """Record attempts for so long, after as many as there were; return how many there are."""
        count = int(seconds * EVENTS_A_SECOND)
        await self._steadily([self.attempt(attempts + number) for number in range(count)])
        return attempts + count

    async def _steadily(self, events: list[Event]) -> None:
        started = perf_counter()
        for number, event in enumerate(events):
            await asyncio.sleep(max(0.0, started + number / EVENTS_A_SECOND - perf_counter()))
            await self.write(event)


@asynccontextmanager
async def live_recording(database_url: str) -> AsyncIterator[LiveRecording]:
    """Give a run's recording, as by a program that records into the database itself."""
    async with (
        open_pool(database_url) as pool,
        RunWatch(PostgresReader(ProjectPool(pool))) as nobody,
        notifications(pool, database_url, nobody) as (written, _),
    ):
        yield LiveRecording(
            postgres_writer(ProjectPool(pool), WriterOptions(notify=Notify(written=written)))
        )
