"""A database that answers and rejects writes: read-only, full or locked.

Writers get an error that asks for a retry, and succeed later without a restart of the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from benchmarks.workload import bodies, trace
from tests.api.conftest import client_of, serving_parts
from tests.databases import template_name
from tests.sample_runs import sample_run
from tests.torture.database_way import database_way
from tests.torture.lengths import say
from tests.torture.small_disk import database_on_small_disk
from tracer.otel.otlp.spans import root_plan_id
from tracer.records.events import event_json
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.postgres.writer import WRITE_SECONDS

RECOVERY_SECONDS = 60.0


class Program:
    """A program that records by events and by spans."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._traces = 0
        self._acknowledged: list[UUID] = []

    @property
    def acknowledged(self) -> int:
        """How many runs were acknowledged."""
        return len(self._acknowledged)

    async def record_run(self, title: str = "Weekly review") -> httpx2.Response:
        """Send the events of a new run."""
        run = sample_run(title=title)
        body = b"\n".join(map(event_json, run.events))
        return await self._post(run.root, "/api/events", body, "application/x-ndjson")

    async def record_trace(self) -> httpx2.Response:
        """Send a new trace."""
        self._traces += 1
        spans = trace(self._traces, 30)
        (body,) = bodies(spans)
        run = root_plan_id(spans[0].trace_id)
        return await self._post(run, "/v1/traces", body, "application/x-protobuf")

    async def _post(self, run: UUID, path: str, body: bytes, media_type: str) -> httpx2.Response:
        response = await self._client.post(path, content=body, headers={"Content-Type": media_type})
        if response.status_code == 200:
            self._acknowledged.append(run)
        return response

    async def runs(self) -> int:
        """Return how many of the acknowledged runs can be read."""
        paths = [f"/api/runs/{run}" for run in self._acknowledged]
        return sum([(await self._client.get(path)).status_code == 200 for path in paths])

    async def recovers(self) -> float:
        """Return after how many seconds it can record in both ways."""
        begun = time.monotonic()
        for record in (self.record_run, self.record_trace):
            while is_refused(await record()):
                assert time.monotonic() - begun < RECOVERY_SECONDS
        return time.monotonic() - begun


def is_refused(response: httpx2.Response) -> bool:
    """Return whether a request is to be sent again later."""
    if response.status_code == 200:
        return False
    assert response.status_code == 503, response.text
    assert int(response.headers["retry-after"]) >= 1
    return True


@asynccontextmanager
async def recording_to(
    database_url: str, home: Path, write_seconds: float = WRITE_SECONDS
) -> AsyncIterator[Program]:
    model = ScriptedModel([])
    async with (
        serving_parts(database_url, home, model, write_seconds=write_seconds) as parts,
        client_of(parts) as client,
    ):
        yield Program(client)


@contextmanager
def read_only(server_url: str, database_url: str) -> Iterator[None]:
    """Make a database read-only, as its hosts do when its disk is nearly full."""
    name = sql.Identifier(str(conninfo_to_dict(database_url)["dbname"]))
    setting = sql.SQL("default_transaction_read_only")
    with psycopg.connect(server_url, autocommit=True) as connection:
        alter = sql.SQL("ALTER DATABASE {} SET {} = on").format(name, setting)
        connection.execute(alter)
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
            [conninfo_to_dict(database_url)["dbname"]],
        )
        yield
        connection.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(name, setting))


async def test_server_recovers_from_a_read_only_database_without_restart(
    postgres_server_url: str, database_url: str, tmp_path: Path
) -> None:
    async with recording_to(database_url, tmp_path) as program:
        assert not is_refused(await program.record_run())
        assert not is_refused(await program.record_trace())
        with read_only(postgres_server_url, database_url):
            for _ in range(5):
                answers = await asyncio.gather(program.record_run(), program.record_trace())
                assert all(map(is_refused, answers))
            assert await program.runs() == 2
        took = await program.recovers()

        assert await program.runs() == program.acknowledged == 4
    say("read-only database", lost=0, recovered_after_s=round(took, 2))


@pytest.mark.usefixtures("_template")
async def test_server_recovers_from_a_full_disk_without_restart(
    postgres_server_url: str, tmp_path: Path
) -> None:
    with database_on_small_disk(postgres_server_url, template_name()) as (disk, database_url):
        async with recording_to(database_url, tmp_path) as program:
            assert not is_refused(await program.record_run())
            disk.fill()
            async with asyncio.timeout(120):
                while not is_refused(await program.record_run("x" * 100_000)):
                    continue
                while not is_refused(await program.record_trace()):
                    continue
            assert await program.runs() == program.acknowledged
            disk.empty()
            took = await program.recovers()

            assert await program.runs() == program.acknowledged
    say("full disk", acknowledged=program.acknowledged, lost=0, recovered_after_s=round(took, 2))


@asynccontextmanager
async def locked(database_url: str) -> AsyncIterator[None]:
    """Hold a lock that every writer needs."""
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE run IN EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("how", ["locked", "frozen"])
async def test_requests_time_out_if_the_database_hangs(
    how: str, database_url: str, tmp_path: Path
) -> None:
    async with (
        database_way(database_url) as (way, url),
        recording_to(url, tmp_path, write_seconds=0.5) as program,
    ):
        assert not is_refused(await program.record_run())
        async with AsyncExitStack() as trouble:
            if how == "locked":
                await trouble.enter_async_context(locked(database_url))
            else:
                way.freeze()
                trouble.callback(way.open)
            slowest = max([await refused_after(program, 20) for _ in range(4)])
            if how == "locked":
                assert await program.runs() == 1
        took = await program.recovers()
    say(f"{how} database", slowest_s=round(slowest, 2), recovered_after_s=round(took, 2))
    assert slowest < 30, "of for ever"


async def refused_after(program: Program, times: int) -> float:
    """Record so many runs and traces at once, and return after how long all were refused."""
    begun = time.monotonic()
    sending = [program.record_run() for _ in range(times)]
    sending += [program.record_trace() for _ in range(times)]
    assert all(map(is_refused, await asyncio.gather(*sending)))
    return time.monotonic() - begun
