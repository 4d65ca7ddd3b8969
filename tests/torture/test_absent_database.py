"""A database outage does not slow the agent and loses no event.

With `make torture` the outage lasts a minute.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import httpx2
import psycopg

from tests.torture.database_way import DatabaseWay, database_way
from tests.torture.forked import Forked
from tests.torture.forked_server import forked_server
from tests.torture.lengths import IS_LONG, say
from tracer.client import Tracing
from tracer.recorder import Spool
from tracer.storage.http import HttpWriter

AWAY_SECONDS = 60.0 if IS_LONG else 3.0
BEFORE_SECONDS = 20.0 if IS_LONG else 1.0
PAUSE_SECONDS = 0.005
"""What the agent does between two calls."""

MOST_SLOWER_SECONDS = 0.001 if IS_LONG else 0.1
"""How much slower a call may be with the database away: a busy machine counts in the short form,
where the slowest calls tell of it alone, and so little that waiting would still be found out."""

MOST_REQUESTS_A_SECOND = 2.0 if IS_LONG else 5.0
MOST_CONNECTIONS_A_SECOND = 3.0 if IS_LONG else 20.0
"""The first moments have most of them: the pauses grow."""

SETTLING = timedelta(seconds=0.5)
"""How long what was under way may take to fail, or to reach the spool."""

EVENTS_AROUND = 4
"""The plan and its step, started and ended."""

READY_SECONDS = 60.0
"""How long the server may need to find its database again."""


@dataclass
class Phase:
    """What an agent has seen of a time."""

    latencies: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """What had become of its events at the end of it."""

    @property
    def median(self) -> float:
        return median(self.latencies)

    @property
    def p99(self) -> float:
        return quantiles(self.latencies, n=100)[98]


def call_until_told(commands: Connection, spool: Path) -> None:
    """Call a tool in a loop; answer each command with what was seen since the one before.

    Args:
        commands: Gives the server's address, then commands, of which `end` is the last.
        spool: Where events wait.
    """
    address = commands.recv()
    with Tracing(lambda: aclosing(HttpWriter(address)), lambda: Spool(spool), buffered=True) as it:
        command = ""
        with it.plan("Measure again and again"):
            while command != "end":
                phase = Phase()
                while not commands.poll():
                    begun = time.perf_counter()
                    with it.tool_call("measure", "{}") as call:
                        call.finish("121/79")
                    phase.latencies.append(time.perf_counter() - begun)
                    time.sleep(PAUSE_SECONDS)
                command = commands.recv()
                phase.counts = asdict(it.counts)
                commands.send(phase)
        it.flush()
        counts = it.counts
        while counts.drained < counts.spooled:
            time.sleep(PAUSE_SECONDS)
        commands.send(asdict(counts))


async def test_database_outage_neither_slows_the_agent_nor_loses_events(
    database_url: str, tmp_path: Path
) -> None:
    # Before any connection is open, which it would hold open, too.
    agent = Forked(tmp_path / "agent.log", call_until_told, tmp_path / "spool.db")
    async with database_way(database_url) as (way, url):
        with ExitStack() as stack:
            # The server asks the database when it starts: the way to it is in this event loop.
            server = await asyncio.to_thread(stack.enter_context, forked_server(url, tmp_path))
            try:
                found = await away_for_a_while(way, server.address, agent)
            finally:
                agent.end()
    before, away, back, counts = found.before, found.away, found.back, found.counts

    requests = (away.counts["write_failures"] - before.counts["write_failures"]) / AWAY_SECONDS
    connections = found.connections / AWAY_SECONDS
    calls = [len(phase.latencies) for phase in (before, away, back)]
    say(
        f"{AWAY_SECONDS:.0f} s without a database",
        calls=calls,
        p99_before_ms=round(before.p99 * 1000, 3),
        p99_away_ms=round(away.p99 * 1000, 3),
        requests_a_second=round(requests, 2),
        connections_a_second=round(connections, 2),
        spooled=counts["spooled"],
        dropped=counts["dropped"],
        ready_after_s=round(found.ready_after, 2),
        drained_after_s=round(found.drained_after, 2),
    )
    if IS_LONG:
        assert away.p99 <= before.p99 + MOST_SLOWER_SECONDS
    assert away.median <= before.median + MOST_SLOWER_SECONDS
    assert (counts["dropped"], counts["refused"]) == (0, 0)
    assert counts["stored"] == 2 * sum(calls) + EVENTS_AROUND
    assert requests <= MOST_REQUESTS_A_SECOND
    assert connections <= MOST_CONNECTIONS_A_SECOND
    stored = calls_in(database_url)
    assert [status for _, _, status in stored] == ["succeeded"] * sum(calls)
    drained = [
        recorded for started, recorded, _ in stored if found.gone_at < started < found.returned_at
    ]
    assert len(drained) > 0
    assert drained == sorted(drained), "the spool is drained in order"


@dataclass
class Found:
    """What was seen before, while and after the database was away."""

    before: Phase
    away: Phase
    back: Phase
    counts: dict[str, int]
    connections: int
    gone_at: datetime
    returned_at: datetime
    ready_after: float
    drained_after: float


async def away_for_a_while(way: DatabaseWay, address: str, agent: Forked) -> Found:
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:

        async def readiness() -> int:
            return (await client.get("/readyz")).status_code

        async def phase(command: str) -> Phase:
            agent.pipe.send(command)
            answer = await asyncio.to_thread(agent.answer)
            assert isinstance(answer, Phase)
            return answer

        agent.pipe.send(address)
        assert await readiness() == 200
        await asyncio.sleep(BEFORE_SECONDS)
        before = await phase("away")

        way.close()
        gone_at, attempts = datetime.now(UTC) + SETTLING, way.attempts
        _, status = await asyncio.gather(asyncio.sleep(AWAY_SECONDS), readiness())
        assert status == 503
        away = await phase("back")
        connections = way.attempts - attempts

        way.open()
        returned_at, opened = datetime.now(UTC) - SETTLING, time.monotonic()
        while await readiness() != 200:
            assert time.monotonic() - opened < READY_SECONDS
        ready_after = time.monotonic() - opened
        await asyncio.sleep(BEFORE_SECONDS)
        back = await phase("end")
        counts = await asyncio.to_thread(agent.answer)
        drained_after = time.monotonic() - opened
    return Found(
        before,
        away,
        back,
        counts,
        connections,
        gone_at,
        returned_at,
        ready_after,
        drained_after,
    )


def calls_in(database_url: str) -> list[tuple[datetime, datetime, str]]:
    """Return when each call started and was recorded, and its status, in the order of starting."""
    with psycopg.connect(database_url) as connection:
        return connection.execute(
            "SELECT started_at, recorded_at, status::text FROM act_tool_info ORDER BY started_at"
        ).fetchall()
