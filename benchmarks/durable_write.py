"""The cost of the write that must be durable before a tool runs, over a bare INSERT and commit.

A recorder in a process with the store, as in an agent that records into Postgres itself: the time
until the event is committed. The bare INSERT writes to a table with a primary key. The three take
turns on the same server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psycopg

from benchmarks.figures import Figure, at_most
from benchmarks.surroundings import Bench
from tracer.recorder import Recorder, Spool
from tracer.records import Status, new_id
from tracer.records.events import (
    ChosenToolCall,
    Event,
    PlannedStep,
    PlanStarted,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallStarted,
)
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer

ARGUMENTS = '{"patient": "p-1", "arm": "left"}'
BATCH = 3
START = datetime(2026, 1, 1, tzinfo=UTC)


class Run:
    """A run that never ends."""

    def __init__(self) -> None:
        root = new_id()
        self._plan: dict[str, Any] = {"at": START, "root_plan_id": root, "plan_id": root}
        self._step = {**self._plan, "step_id": new_id()}
        self._rounds = 0

    def begun(self) -> list[Event]:
        """Return its beginning."""
        steps = (PlannedStep(step_id=self._step["step_id"]),)
        return [PlanStarted(**self._plan, steps=steps), StepStarted(**self._step, position=0)]

    def thinks(self) -> ThoughtStarted:
        """Return the beginning of another round."""
        self._thought = {**self._step, "think_act_id": new_id()}
        self._rounds += 1
        return ThoughtStarted(**self._thought, position=self._rounds)

    def chosen(self) -> ThoughtRecorded:
        """Return its end, with the calls that are about to run at the same time."""
        calls = tuple(
            ChosenToolCall(tool_call_id=new_id(), name="measure", arguments=ARGUMENTS)
            for _ in range(BATCH)
        )
        return ThoughtRecorded(**self._thought, status=Status.SUCCEEDED, tool_calls=calls)

    def one_call(self) -> ToolCallStarted:
        """Return the start of a call."""
        return ToolCallStarted(
            **self._step, tool_call_id=new_id(), name="measure", arguments=ARGUMENTS
        )


@asynccontextmanager
async def recording(url: str, folder: Path) -> AsyncIterator[Recorder]:
    """Give a recorder that writes into the database."""
    async with (
        open_pool(url) as pool,
        Recorder(postgres_writer(ProjectPool(pool)), Spool(folder / "spool")) as recorder,
    ):
        yield recorder


async def compared(url: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return how many milliseconds each kind of write took, round by round."""
    taken: dict[str, list[float]] = {"bare": [], "one": [], "batch": []}
    run = Run()
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        recording(url, folder) as recorder,
    ):
        await connection.execute("CREATE TABLE bare (id uuid PRIMARY KEY, name text, body text)")
        for event in run.begun():
            await recorder.record(event)
        for number in range(-20, rounds):
            await recorder.record(run.thinks())
            events: dict[str, Event] = {"one": run.one_call(), "batch": run.chosen()}
            for name in taken:
                began = perf_counter()
                if name == "bare":
                    row = [new_id(), "measure", ARGUMENTS]
                    await connection.execute("INSERT INTO bare VALUES (%s, %s, %s)", row)
                else:
                    await recorder.record(events[name])
                if number >= 0:  # the first rounds warm up
                    taken[name].append(1000 * (perf_counter() - began))
    return taken


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure a single call's write and that of a batch."""
    folder = bench.folder / "durable"
    folder.mkdir()
    with bench.database() as url:
        taken = asyncio.run(compared(url, folder, bench.sized(500, 30)))
    bare = median(taken["bare"])
    yield Figure(name="a bare INSERT and commit, p50", value=bare, unit="ms")
    for name, title in (("one", "a call"), ("batch", f"a batch of {BATCH}")):
        yield Figure(
            name=f'the durable "before" write of {title}, p50',
            value=median(taken[name]),
            unit="ms",
            yardstick="a bare INSERT and commit",
            ratio=median(taken[name]) / bare,
            goal=at_most(1.5),
        )
