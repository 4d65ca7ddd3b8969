"""A recorder that writes to a real server, which is killed and restarted under load.

With `TRACER_TORTURE=1` (`make torture`) the server is down for a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sample_runs import SampleRun, sample_run
from tests.servers import Server, start_server
from tracer.recorder import Recorder, Spool
from tracer.storage.http import HttpWriter

pytestmark = pytest.mark.thorough

AWAY_SECONDS = 60.0 if os.environ.get("TRACER_TORTURE") else 0.0
PATIENCE = 0.5
BUSY_SECONDS = 20.0
"""What a busy machine may add to the recorder's patience: its disk, and whose turn it is."""
AGENTS = 3
WORK_SECONDS = 0.01
"""What an agent does between two events; without it, the spool alone would be what is measured."""


@dataclass
class Load:
    """Agents that record one run after the other, event by event, until they are stopped."""

    recorder: Recorder
    runs: list[SampleRun] = field(default_factory=list)
    slowest: float = 0.0
    goes_on: bool = True

    async def agent(self) -> None:
        loop = asyncio.get_running_loop()
        while self.goes_on:
            run = sample_run()
            self.runs.append(run)
            for event in run.events:
                begin = loop.time()
                await self.recorder.record(event)
                self.slowest = max(self.slowest, loop.time() - begin)
                await asyncio.sleep(WORK_SECONDS)

    @property
    def recorded(self) -> int:
        return sum(len(run.events) for run in self.runs)


@asynccontextmanager
async def load(recorder: Recorder) -> AsyncIterator[Load]:
    """Record while inside; every run that was begun is recorded to its end."""
    under = Load(recorder)
    async with asyncio.TaskGroup() as agents:
        for _ in range(AGENTS):
            agents.create_task(under.agent())
        try:
            yield under
        finally:
            under.goes_on = False


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - it comes about in another process, which tells nobody
            await asyncio.sleep(0.02)


class Trouble:
    """A server in trouble, and out of it again."""

    def __init__(self, server: Server, restart: Callable[[int], Server]) -> None:
        self.server = server
        self._restart = restart

    async def begin(self, how: str) -> None:
        self.server.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        if how == "killed":
            await asyncio.to_thread(self.server.process.wait)

    async def end(self, how: str) -> None:
        if how == "killed":
            port = int(self.server.address.rpartition(":")[2])
            self.server = await asyncio.to_thread(self._restart, port)
        else:
            self.server.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_outage_of_the_server_under_load_loses_no_event(
    how: str, database_url: str, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool.sqlite3")

    def restart(port: int) -> Server:
        return start_server(database_url, tmp_path, port=port)

    trouble = Trouble(await asyncio.to_thread(restart, 0), restart)
    try:
        async with (
            aclosing(HttpWriter(trouble.server.address)) as writer,
            Recorder(writer, spool, patience=PATIENCE) as recorder,
        ):
            async with load(recorder) as under:
                await until(lambda: recorder.counts.stored >= 100)
                await trouble.begin(how)
                # On a busy machine, the spool may have been needed before.
                spooled = recorder.counts.spooled
                await until(lambda: recorder.counts.spooled > spooled)
                enough, over = under.recorded + 200, time.monotonic() + AWAY_SECONDS
                # What was answered just before is still on its way out of the spool.
                await until(lambda: under.recorded >= enough - 100)
                drained = recorder.counts.drained
                await until(
                    lambda: under.recorded >= enough and time.monotonic() >= over,
                    seconds=60 + AWAY_SECONDS,
                )
                assert recorder.counts.drained == drained
                await trouble.end(how)
                await until(lambda: recorder.counts.drained > drained)
            counts = recorder.counts
            await until(lambda: counts.stored == under.recorded, seconds=120 + 2 * AWAY_SECONDS)

        assert await spool.count() == 0
        await spool.close()
        assert (counts.dropped, counts.refused) == (0, 0)
        assert under.slowest <= PATIENCE + BUSY_SECONDS
        assert await asyncio.to_thread(kept, database_url) == expected(under.runs)
    finally:
        trouble.server.process.kill()
        await asyncio.to_thread(trouble.server.process.wait)


def expected(runs: list[SampleRun]) -> list[tuple[Any, ...]]:
    """Return each run with its status, its totals, and how many records it has of each kind."""
    return sorted((run.root, "succeeded", 3, 1, 3, 1, 1, 3) for run in runs)


def kept(database_url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT root_plan_id, status::text, tool_calls, failed_calls,"
            " (SELECT count(*) FROM plan_execution_record p"
            "  WHERE p.root_plan_id = run.root_plan_id AND p.status = 'succeeded'),"
            " (SELECT count(*) FROM agent_execution_record s"
            "  WHERE s.root_plan_id = run.root_plan_id AND s.status = 'succeeded'),"
            " (SELECT count(*) FROM think_act_record t"
            "  WHERE t.root_plan_id = run.root_plan_id AND t.status = 'succeeded'),"
            " (SELECT count(*) FROM act_tool_info c"
            "  WHERE c.root_plan_id = run.root_plan_id AND c.finished_at IS NOT NULL)"
            " FROM run ORDER BY root_plan_id"
        ).fetchall()
    return rows
