"""Recording processes are killed one after the other, and sometimes their server.

The next process sends the events that a killed process left in the spool.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from tests.recorder.plans import plan_started
from tests.recorder.test_over_http import until
from tests.torture.forked import Forked
from tests.torture.forked_server import ForkedServer, forked_server
from tests.torture.lengths import EVENTS, IS_LONG, say
from tracer.recorder import Recorder, Spool
from tracer.records import Status, new_id
from tracer.records.events import PlanStarted, ToolCallFinished, ToolCallStarted
from tracer.storage.http import HttpWriter

ROUNDS = 20 if IS_LONG else 2
"""How many processes are killed."""

ACKNOWLEDGED = (EVENTS if IS_LONG else 800) // ROUNDS
"""How many events each of them has recorded before."""

AGENTS = 40 if IS_LONG else 4
CALLS_OF_A_RUN = 25
TOOL_SECONDS = 0.01
LEASE_SECONDS = 2.0
BUSY_SECONDS = 30.0
"""What a busy machine may add."""


def record_until_killed(acknowledged: Connection, address: str, spool: Path) -> None:
    """Let agents call one tool after the other, and tell of each event that was recorded."""

    async def started(recorder: Recorder, plan: PlanStarted) -> dict[str, Any]:
        call: dict[str, Any] = {
            "root_plan_id": plan.root_plan_id,
            "plan_id": plan.plan_id,
            "step_id": plan.plan_id,
            "tool_call_id": new_id(),
        }
        await recorder.record(ToolCallStarted(**recorder.stamp(), **call, name="measure"))
        acknowledged.send((call["tool_call_id"], "started"))
        return call

    async def agent(recorder: Recorder) -> None:
        while True:
            plan = plan_started(recorder)
            await recorder.record(plan)
            for _ in range(CALLS_OF_A_RUN):
                call = await started(recorder, plan)
                await asyncio.sleep(TOOL_SECONDS)
                await recorder.record(
                    ToolCallFinished(**recorder.stamp(), **call, status=Status.SUCCEEDED)
                )
                acknowledged.send((call["tool_call_id"], "finished"))

    async def agents() -> None:
        async with (
            aclosing(HttpWriter(address)) as writer,
            Recorder(writer, Spool(spool)) as recorder,
            asyncio.TaskGroup() as group,
        ):
            await started(recorder, plan_started(recorder))  # and never ended
            for _ in range(AGENTS):
                group.create_task(agent(recorder))

    asyncio.run(agents())


@dataclass
class Told:
    """What processes have told of before they were killed."""

    started: set[UUID] = field(default_factory=set)
    finished: set[UUID] = field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.started) + len(self.finished)

    def hear(self, process: Forked) -> None:
        """Take down what a process tells, until it was killed."""
        try:
            while True:
                call_id, what = process.pipe.recv()
                (self.started if what == "started" else self.finished).add(call_id)
        except (EOFError, OSError):
            return


async def killed_process(
    acknowledged: Told, server: ForkedServer, home: Path, is_server_killed: bool
) -> float:
    """Let a process record, and kill it; return when that was."""
    process = Forked(home / "recorders.log", record_until_killed, server.address, home / "spool.db")
    hearing = asyncio.create_task(asyncio.to_thread(acknowledged.hear, process))
    before = acknowledged.count

    async def reached(part: float) -> None:
        def is_reached() -> bool:
            return hearing.done() or acknowledged.count - before >= ACKNOWLEDGED * part

        await until(is_reached, seconds=300)
        assert not hearing.done(), (home / "recorders.log").read_text()

    try:
        if is_server_killed:
            await reached(0.5)
            server.kill()
        await reached(1)
    finally:
        process.kill_at_once()
        killed = time.monotonic()
        await hearing
        process.end()
    if is_server_killed:
        await asyncio.to_thread(server.start)
    return killed


async def test_killed_recorder_loses_no_acknowledged_event_and_is_abandoned(
    database_url: str, tmp_path: Path
) -> None:
    acknowledged = Told()
    with forked_server(database_url, tmp_path, lease_seconds=LEASE_SECONDS) as server:
        for number in range(ROUNDS):
            killed = await killed_process(
                acknowledged, server, tmp_path, is_server_killed=number % 2 == 0
            )
        spool = Spool(tmp_path / "spool.db")
        left_behind = await spool.count()
        async with aclosing(HttpWriter(server.address)) as writer, Recorder(writer, spool) as last:
            await until(lambda: last.counts.drained >= left_behind, seconds=60)
        await until(lambda: not unjudged(database_url), seconds=60)
        took = time.monotonic() - killed

    calls = calls_in(database_url)
    lost = sum(call not in calls for call in acknowledged.started)
    lost += sum(calls.get(call) != ("succeeded", False) for call in acknowledged.finished)
    in_flight = {call: shown for call, shown in calls.items() if call not in acknowledged.finished}
    say(
        "kill -9 of recorders under load",
        acknowledged=acknowledged.count,
        kills=ROUNDS,
        left_in_the_spool=left_behind,
        lost=lost,
        duplicated=counted_wrongly(database_url),
        in_flight=len(in_flight),
        abandoned_after_leases=round(took / LEASE_SECONDS, 2),
    )
    assert (lost, counted_wrongly(database_url)) == (0, 0)
    assert ROUNDS <= len(in_flight) <= (1 + AGENTS) * ROUNDS
    # What was on its way may have arrived, though nobody was told so.
    assert set(in_flight.values()) <= {("running", True), ("succeeded", False)}
    assert took < 2 * LEASE_SECONDS + BUSY_SECONDS
    assert recorded_after_last_heartbeat(database_url) == 0


def calls_in(database_url: str) -> dict[UUID, tuple[str, bool]]:
    """Return the status of each call, and whether it is abandoned."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT tool_call_id, call.status::text, shown.abandoned_at IS NOT NULL"
            " FROM act_tool_info AS call"
            " JOIN trace.tool_calls AS shown USING (root_plan_id, tool_call_id)"
        ).fetchall()
    return {call: (status, is_abandoned) for call, status, is_abandoned in rows}


def unjudged(database_url: str) -> bool:
    """Return whether any call is shown as running."""
    return ("running", False) in calls_in(database_url).values()


def recorded_after_last_heartbeat(database_url: str) -> int:
    """Return how many calls started after the last heartbeat of their recorder."""
    with psycopg.connect(database_url) as connection:
        [(late,)] = connection.execute(
            "SELECT count(*) FROM act_tool_info AS call JOIN recorder_lease USING (recorder_id)"
            " WHERE seen_at < call.started_at"
        ).fetchall()
    return int(late)


def counted_wrongly(database_url: str) -> int:
    """Return how many runs have totals that are not those of their calls."""
    with psycopg.connect(database_url) as connection:
        [(wrong,)] = connection.execute(
            "SELECT count(*) FROM run WHERE tool_calls <> (SELECT count(*) FROM act_tool_info"
            " WHERE act_tool_info.root_plan_id = run.root_plan_id)"
        ).fetchall()
    return int(wrong)
