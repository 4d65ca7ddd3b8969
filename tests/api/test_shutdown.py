"""A server that shuts down finishes its requests and disconnects live clients."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest
from pydantic import SecretStr

from api.main import DRAIN_SECONDS, served
from tests.api.commands import process_settings_restored
from tests.sample_runs import SampleRun, sample_run
from tests.servers import Server, start_server
from tests.storage.postgres.lock_waits import until_waiting
from tests.torture.lengths import IS_LONG
from tracer.recorder import CLOSING_SECONDS
from tracer.records.events import event_json
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import ScriptedModel
from tracer.settings import read_settings

PLENTY_SECONDS = 60.0
NDJSON = {"Content-Type": "application/x-ndjson"}


@contextmanager
def server(database_url: str, home: Path) -> Iterator[Server]:
    started = start_server(database_url, home)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@contextmanager
def held(database_url: str, run_id: UUID) -> Iterator[psycopg.Connection]:
    """Lock a run, so that its writers wait."""
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT FROM run WHERE root_plan_id = %s FOR UPDATE", [run_id])
        yield connection


async def post(client: httpx2.AsyncClient, run: SampleRun) -> int:
    body = b"\n".join(map(event_json, run.events))
    return (await client.post("/api/events", content=body, headers=NDJSON)).status_code


async def ended(process: Server) -> float:
    """Return after how many seconds a server has ended."""
    begin = time.monotonic()
    await asyncio.to_thread(process.process.wait, PLENTY_SECONDS)
    return time.monotonic() - begin


@asynccontextmanager
async def ending_server(database_url: str, home: Path) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Give the address of a server in this process, and the event that ends it when set."""
    idle = Application(name="idle", agents=(Agent("nobody", "Wait."),), model=ScriptedModel([]))
    settings = read_settings(home=home, database_url=SecretStr(database_url))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ending = asyncio.Event()

    async def serve() -> None:
        async with served(settings, idle) as server:
            address.set_result(server.address)
            await ending.wait()

    with process_settings_restored():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve())
            yield await address, ending


async def test_shutdown_answers_pending_writes_and_closes_streams(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        ending_server(database_url, tmp_path) as (address, ending),
        httpx2.AsyncClient(base_url=address, timeout=PLENTY_SECONDS) as client,
    ):
        await check_end(client, database_url, ending.set)


@pytest.mark.thorough
async def test_sigterm_answers_pending_writes_and_closes_streams(
    database_url: str, tmp_path: Path
) -> None:
    with server(database_url, tmp_path) as running:
        async with httpx2.AsyncClient(base_url=running.address, timeout=PLENTY_SECONDS) as client:
            await check_end(client, database_url, running.process.terminate)
            await ended(running)
            with pytest.raises(httpx2.ConnectError):
                await post(client, sample_run())

    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log
    assert "recorder_closed" in log


async def check_end(client: httpx2.AsyncClient, database_url: str, end: Callable[[], None]) -> None:
    """Check what becomes of a stream and of a write that waits when the server ends."""
    watched, written = sample_run(finished=False), sample_run(finished=False)
    assert [await post(client, each) for each in (watched, written)] == [200, 200]
    async with client.stream("GET", f"/api/runs/{watched.root}/events") as stream:
        messages = stream.aiter_lines()
        await anext(messages)
        with held(database_url, written.root) as holding:
            writing = asyncio.create_task(post(client, written))
            await until_waiting(database_url, 1)
            end()
            async for _ in messages:  # up to its orderly end
                pass
            assert not writing.done()
            holding.commit()
        assert await writing == 200


@pytest.mark.thorough
@pytest.mark.skipif(not IS_LONG, reason="takes as long as the deadline")
async def test_shutdown_waits_for_a_stuck_write_until_the_deadline(
    database_url: str, tmp_path: Path
) -> None:
    run = sample_run(finished=False)
    with server(database_url, tmp_path) as running:
        async with httpx2.AsyncClient(base_url=running.address, timeout=PLENTY_SECONDS) as client:
            assert await post(client, run) == 200
            with held(database_url, run.root):
                writing = asyncio.create_task(post(client, run))
                await until_waiting(database_url, 1)
                running.process.send_signal(signal.SIGTERM)
                seconds = await ended(running)
            [answer] = await asyncio.gather(writing, return_exceptions=True)

    sys.stdout.write(f"ended {seconds:.1f} s after SIGTERM with a write that does not end\n")
    assert answer == 500 or isinstance(answer, httpx2.TransportError)
    assert seconds < DRAIN_SECONDS + CLOSING_SECONDS + 5
