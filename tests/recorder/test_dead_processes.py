"""A real server marks the calls of a process as abandoned only if the process has died."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.servers import Server, start_server

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[2]
LEASE_SECONDS = 3.0
PLENTY_SECONDS = 200.0
BUSY_SECONDS = 20.0
"""What a busy machine may add."""

KINDS = ["runtime", "client"]


@pytest.fixture
def server(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], Server]]:
    """Start a server with short leases, on a port."""
    monkeypatch.setenv("TRACER_LEASE_SECONDS", str(LEASE_SECONDS))
    started: list[Server] = []

    def start(port: int = 0) -> Server:
        started.append(start_server(database_url, tmp_path, port=port))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@asynccontextmanager
async def process_with_a_call(
    kind: str, server: Server, home: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, UUID]]:
    """Give a process that has a call under way, and its run."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.recorder.dying_process", kind, server.address, str(home)),
        cwd=REPOSITORY,
        env={**os.environ, "TRACER_HOME": str(home)},
        stdout=PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PLENTY_SECONDS):
            line = await process.stdout.readline()
        yield process, UUID(line.decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Database:
    """What is in the tables, without the server."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def calls(self, root: UUID) -> list[tuple[str, bool]]:
        """Return the stored status of each call of a run, and whether it is abandoned."""
        return await self._rows(
            "SELECT call.status::text, shown.abandoned_at IS NOT NULL FROM act_tool_info AS call"
            " JOIN trace.tool_calls AS shown USING (root_plan_id, tool_call_id)"
            " WHERE root_plan_id = %s",
            root,
        )

    async def heard(self, root: UUID) -> list[tuple[datetime, float]]:
        """Return when a run's recorder was heard, if it was, and how many seconds ago that is."""
        return await self._rows(
            "SELECT seen_at, extract(epoch FROM now() - seen_at)::float8"
            " FROM recorder_lease JOIN recorder_run USING (recorder_id) WHERE root_plan_id = %s",
            root,
        )

    async def _rows(self, query: str, root: UUID) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            return await (await connection.execute(query.encode(), [root])).fetchall()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PLENTY_SECONDS):
        while not await holds():  # noqa: ASYNC110 - it comes about in another process
            await asyncio.sleep(0.05)


async def until_heard(database: Database, root: UUID, times: int) -> None:
    """Return when a run's recorder was heard again so many times."""
    heard: set[datetime] = set()

    async def enough() -> bool:
        heard.update(moment for moment, _ in await database.heard(root))
        return len(heard) > times

    await until(enough)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_a_killed_process_are_abandoned_within_two_leases(
    kind: str, server: Callable[[int], Server], database_url: str, tmp_path: Path
) -> None:
    database = Database(database_url)
    async with process_with_a_call(kind, server(0), tmp_path) as (process, root):
        # Longer than a lease, in which it did nothing but live.
        await until_heard(database, root, 4)
        await until(lambda: _is_running(database, root))

        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        await until(lambda: _is_abandoned(database, root))
        took = time.monotonic() - killed

    sys.stdout.write(f"{kind}: abandoned {took / LEASE_SECONDS:.2f} leases after kill -9\n")
    assert took < 2 * LEASE_SECONDS + BUSY_SECONDS


async def test_suspended_process_reopens_its_abandoned_calls_when_it_continues(
    server: Callable[[int], Server], database_url: str, tmp_path: Path
) -> None:
    database = Database(database_url)
    async with process_with_a_call("runtime", server(0), tmp_path) as (process, root):
        await until_heard(database, root, 1)
        process.send_signal(signal.SIGSTOP)
        await until(lambda: _is_abandoned(database, root))

        process.send_signal(signal.SIGCONT)
        await until(lambda: _is_running(database, root))


async def test_server_after_a_long_outage_abandons_no_live_recorder(
    server: Callable[[int], Server], database_url: str, tmp_path: Path
) -> None:
    database = Database(database_url)
    first = server(0)
    async with process_with_a_call("client", first, tmp_path) as (_, root):
        await until_heard(database, root, 1)
        first.process.kill()
        await asyncio.to_thread(first.process.wait)

        async def is_over() -> bool:
            return (await database.heard(root))[0][1] > LEASE_SECONDS

        await until(is_over)
        await asyncio.to_thread(server, int(first.address.rpartition(":")[2]))
        await until_heard(database, root, 4)

        assert await _is_running(database, root)


async def _is_abandoned(database: Database, root: UUID) -> bool:
    return await database.calls(root) == [("running", True)]


async def _is_running(database: Database, root: UUID) -> bool:
    return await database.calls(root) == [("running", False)]
