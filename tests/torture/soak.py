"""A soak: `make soak MINUTES=45` records and reads under kills, then compares all data.

Two servers share a Postgres. Programs send events and spans over HTTP, with log records, and read.
Each minute a random component is killed: the first server, a projector, a session of Postgres or
all of Postgres. The second server is never killed, so its memory, descriptors and connections show
whether anything grows. At the end, all acknowledged data is compared with the stored data.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import psutil
import psycopg

from tests.otel.made_logs import logs_as_traces, made_log
from tests.storage.postgres.pending_runs import until_projected
from tests.stored import read_logs
from tests.torture.forked_server import ForkedServer, forked_server
from tests.torture.load import Difference, Load, deliver, difference, load_of
from tests.torture.private_postgres import PrivatePostgres, private_postgres
from tracer.errors import StoreUnavailable
from tracer.storage.http import HttpWriter
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.reader import PostgresReader

EVENTS = 1_000
"""How many events a load has, and a tenth as many spans."""

LOGS = 20
PAUSE_SECONDS = 10.0
"""The pause between two loads, so that the machine is not busy all the time."""

KILL_SECONDS = 60.0
ROW_SECONDS = 300.0
PATHS = ("tree", "spans", "export", "run", "runs", "stats")
COLUMNS = (
    "minute",
    "acknowledged",
    "kills",
    "server MB",
    "projectors MB",
    "descriptors",
    "connections",
)


class Soak:
    """The state of a soak."""

    def __init__(
        self, steady: ForkedServer, killed: ForkedServer, postgres: PrivatePostgres, seconds: float
    ) -> None:
        self._steady = steady
        self._killed = killed
        self._postgres = postgres
        self._began = time.monotonic()
        self._seconds = seconds
        self._chance = random.Random(1)
        self.loads: list[Load] = []
        self.kills: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.rows: list[tuple[object, ...]] = []

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self._began > self._seconds

    async def run(self) -> None:
        """Record, read, kill and measure until the time is over."""
        async with AsyncExitStack() as stack:
            writers = [
                await stack.enter_async_context(aclosing(HttpWriter(server.address)))
                for server in (self._steady, self._killed)
            ]
            client = await stack.enter_async_context(
                httpx2.AsyncClient(base_url=self._steady.address, timeout=60, trust_env=False)
            )
            await asyncio.gather(
                self._record(writers),
                self._every(1.0, lambda: self._read(client)),
                self._every(KILL_SECONDS, self._kill),
                self._every(ROW_SECONDS, self.measure),
            )

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self.is_over:
            await work()
            await asyncio.sleep(min(seconds, max(0.0, self._left)))

    @property
    def _left(self) -> float:
        return self._began + self._seconds - time.monotonic()

    async def _record(self, writers: list[HttpWriter]) -> None:
        while not self.is_over:
            load = load_of(EVENTS, seed=len(self.loads) + 1)
            await deliver(load, writers)
            for trace in load.traces:
                logs = logs_as_traces(
                    *(
                        made_log(f"log {number}", number, trace_id=trace[0].trace_id.hex())
                        for number in range(LOGS)
                    )
                )
                while True:
                    with suppress(StoreUnavailable):
                        await writers[0].write_spans(logs)
                        break
                    await asyncio.sleep(0.1)
            self.loads.append(load)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self, client: httpx2.AsyncClient) -> None:
        if not self.loads:
            return
        run = self._chance.choice(self._chance.choice(self.loads).roots)
        path = {
            "tree": f"/api/plans/{run}/tree",
            "spans": f"/api/runs/{run}/spans",
            "export": f"/api/runs/{run}/export",
            "run": f"/api/runs/{run}",
            "runs": "/api/runs",
            "stats": "/api/stats/tools",
        }[self._chance.choice(PATHS)]
        try:
            self.answers[(await client.get(path)).status_code] += 1
        except httpx2.HTTPError:
            self.answers[0] += 1

    async def _kill(self) -> None:
        if not self.loads:
            return
        what = self._chance.choice(("server", "projector", "session", "postgres"))
        self.kills[what] += 1
        match what:
            case "server":
                self._killed.kill()
                await asyncio.to_thread(self._killed.start)
            case "projector":
                await asyncio.to_thread(self._killed.kill_a_projector)
            case "session":
                await asyncio.to_thread(self._postgres.kill_a_session)
            case "postgres":
                await asyncio.to_thread(self._postgres.kill)
                await asyncio.to_thread(self._postgres.start)

    async def measure(self) -> None:
        """Add a row to the table, and print it."""
        server = psutil.Process(self._steady.pid)
        children = server.children(recursive=True)
        connections: object = "-"
        with suppress(psycopg.Error):
            connections = await asyncio.to_thread(self._count_connections)
        self.rows.append(
            (
                round((time.monotonic() - self._began) / 60),
                sum(load.acknowledged for load in self.loads),
                self.kills.total(),
                server.memory_info().rss // 2**20,
                sum(each.memory_info().rss for each in children) // 2**20,
                server.num_fds(),
                connections,
            )
        )
        say("| " + " | ".join(map(str, self.rows[-1])) + " |")

    def _count_connections(self) -> int:
        with psycopg.connect(self._postgres.url) as connection:
            [[count]] = connection.execute("SELECT count(*) FROM pg_stat_activity").fetchall()
        return int(count)

    async def compare(self) -> dict[str, int]:
        """Compare what was acknowledged with what is stored, and return the differences."""
        await until_projected(self._postgres.url)
        found = Difference()
        lost_logs = 0
        async with open_pool(self._postgres.url) as pool:
            reader = PostgresReader(ProjectPool(pool))
            for load in self.loads:
                found += await difference(load, reader)
                for root in load.roots[len(load.runs) :]:
                    lost_logs += abs(LOGS - len(await read_logs(reader, root)))
        with psycopg.connect(self._postgres.url) as connection:
            [[stuck, unprojected]] = connection.execute(
                "SELECT (SELECT count(*) FROM pending_run),"
                " (SELECT count(*) FROM run WHERE projection_error IS NOT NULL)"
            ).fetchall()
        return {
            "lost": found.lost,
            "lost log records": lost_logs,
            "doubled": found.duplicated,
            "wrong totals": found.wrong_totals,
            "stuck": stuck,
            "unprojected": unprojected,
            "failed reads": sum(
                count for status, count in self.answers.items() if status not in (0, 200, 503)
            ),
        }


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(minutes: float) -> int:
    """Run a soak, and return the exit code of the program."""
    with TemporaryDirectory() as folder, private_postgres() as postgres:
        homes = [Path(folder) / name for name in ("steady", "killed")]
        for home in homes:
            home.mkdir()
        with (
            forked_server(postgres.url, homes[0], projectors=1) as steady,
            forked_server(postgres.url, homes[1], projectors=1) as killed,
        ):
            say("| " + " | ".join(COLUMNS) + " |")
            say("|" + "---|" * len(COLUMNS))
            soak = Soak(steady, killed, postgres, 60 * minutes)
            await soak.run()
            await soak.measure()
            differences = await soak.compare()
    say(f"\nKills: {dict(soak.kills)}. Answers to reads: {dict(soak.answers)}.")
    say(f"Differences: {differences}.")
    return 1 if any(differences.values()) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]))))
