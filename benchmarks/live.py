"""The delay of live updates: from the commit to the message at the client.

A program records a run into Postgres at 100 events a second; two servers on the same database
stream it to clients. A bare commit on the same database is the yardstick.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from uuid import UUID

import httpx2
import orjson

from benchmarks.figures import Figure, at_most, spread
from benchmarks.surroundings import Bench
from tracer.records import Status, new_id
from tracer.records.events import Event, PlannedStep, PlanStarted, ToolCallFinished, ToolCallStarted
from tracer.storage.postgres import (
    Notify,
    Pool,
    PostgresWriter,
    ProjectPool,
    RunWatch,
    WriterOptions,
    notifications,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.reader import PostgresReader

EVENTS_A_SECOND = 100
CLIENTS = 3
SIZES = (0, 10_000, 30_000)
"""How many records the run has before."""

SERVERS = 2
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Recording:
    """A run as it is recorded, and when each of its calls was committed and seen."""

    root: UUID = field(default_factory=new_id)
    step: UUID = field(default_factory=new_id)
    committed: dict[str, float] = field(default_factory=dict)
    writing: list[float] = field(default_factory=list)
    """How many milliseconds each write took."""
    seen: dict[tuple[int, str], float] = field(default_factory=dict)
    """By client and call."""

    def place(self, call: UUID | None = None) -> dict[str, Any]:
        """Return the fields of every event."""
        fields = {"at": START, "root_plan_id": self.root, "plan_id": self.root}
        return fields if call is None else {**fields, "step_id": self.step, "tool_call_id": call}

    def started(self, call: UUID) -> Event:
        """Return the start of a call."""
        return ToolCallStarted(**self.place(call), name="measure", arguments='{"number": 1}')

    def finished(self, call: UUID) -> Event:
        """Return its end."""
        return ToolCallFinished(**self.place(call), status=Status.SUCCEEDED, result="x" * 500)

    def plan(self) -> Event:
        """Return the start of the run."""
        return PlanStarted(**self.place(), title="Live", steps=(PlannedStep(step_id=self.step),))

    def milliseconds(self) -> list[float]:
        """Return how long after its commit each client saw each event."""
        return [
            1000 * (at - self.committed[call])
            for (_, call), at in self.seen.items()
            if call in self.committed
        ]


@asynccontextmanager
async def recording_process(url: str) -> AsyncIterator[PostgresWriter]:
    """Give a writer like that of a program that records into the database itself."""
    async with (
        open_pool(url) as pool,
        RunWatch(PostgresReader(ProjectPool(pool))) as nobody,
        notifications(pool, url, nobody) as (written, _),
    ):
        yield postgres_writer(ProjectPool(pool), WriterOptions(notify=Notify(written=written)))


async def watch(address: str, number: int, run: Recording, after: int) -> None:
    """Note when each call's state arrives."""
    async with (
        httpx2.AsyncClient(base_url=address, timeout=None) as client,
        client.stream("GET", f"/api/runs/{run.root}/events", params={"after": after}) as answer,
    ):
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            at = perf_counter()
            for row in orjson.loads(line.removeprefix("data: ")).get("changed", []):
                if row["kind"] == "toolCall":
                    # A state that was over before it could be sent is seen with the next.
                    for status in ("running", row["status"]):
                        run.seen.setdefault((number, row["toolCallId"] + status), at)


async def record(writer: PostgresWriter, run: Recording, seconds: int) -> None:
    """Record calls, an event at a time, at the rate that is to be kept."""
    started = perf_counter()
    for number in range(EVENTS_A_SECOND * seconds // 2):
        call = new_id()
        for half, (event, status) in enumerate(
            ((run.started(call), "running"), (run.finished(call), "succeeded"))
        ):
            due = started + (2 * number + half) / EVENTS_A_SECOND
            await asyncio.sleep(max(0.0, due - perf_counter()))
            begun = perf_counter()
            await writer.write([event])
            run.committed[str(call) + status] = perf_counter()
            run.writing.append(1000 * (perf_counter() - begun))


async def bare_commits(pool: Pool) -> list[float]:
    """Return how many milliseconds bare inserts with a commit each take."""
    taken = []
    async with pool.connection() as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS bare (id uuid, body text)")
        for _ in range(500):
            begun = perf_counter()
            await connection.execute("INSERT INTO bare VALUES (%s, %s)", [new_id(), "x" * 500])
            taken.append(1000 * (perf_counter() - begun))
    return taken


async def measured_run(url: str, addresses: list[str], size: int, seconds: int) -> Recording:
    """Return how a run of some size was seen."""
    run = Recording()
    async with recording_process(url) as writer:
        await writer.write([run.plan()])
        for _ in range(0, size, 1000):
            await writer.write([run.finished(new_id()) for _ in range(1000)])
        async with open_pool(url) as pool:
            after = (await PostgresReader(ProjectPool(pool)).read_run(run.root)).revision
        watchers = [
            asyncio.create_task(watch(addresses[number % len(addresses)], number, run, after))
            for number in range(CLIENTS)
        ]
        await asyncio.sleep(1)
        await record(writer, run, seconds)
        await asyncio.sleep(2)
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    return run


async def figures(bench: Bench, url: str, addresses: list[str]) -> list[Figure]:
    """Return how soon runs of several sizes were seen."""
    async with open_pool(url) as pool:
        found = spread("a bare insert and commit", await bare_commits(pool))
    commit = found[0].value
    for size in SIZES[: bench.sized(len(SIZES), 1)]:
        bench.say(f"a run of {size:,} records")
        run = await measured_run(url, addresses, size, bench.sized(20, 2))
        of_run = f"run of {size:,} records"
        found += spread(f"write, {of_run}", run.writing)
        seen = spread(f"commit to client, {of_run}", run.milliseconds(), goal=at_most(50, "value"))
        ratio = seen[0].value / commit
        found.append(
            seen[0].model_copy(update={"yardstick": "a bare insert and commit", "ratio": ratio})
        )
        found.append(seen[1])
    return found


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure a run of each size, with two servers on one database."""
    with bench.database() as url, ExitStack() as stack:
        servers = [stack.enter_context(bench.server(url)) for _ in range(SERVERS)]
        yield from asyncio.run(figures(bench, url, [server.address for server in servers]))
