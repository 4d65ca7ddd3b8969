"""A server that is told to end answers what it has in hand, lets its watchers go, and ends."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest

from api.serving import DRAIN_SECONDS
from tests.sample_runs import SampleRun, sample_run
from tests.servers import Server, start_server
from tests.storage.lock_waits import until_waiting
from tests.torture.lengths import IS_LONG
from tracer.events import event_json
from tracer.recorder.recorder import CLOSING_SECONDS

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
    """Hold a run, so that whoever writes to it waits."""
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


async def test_writes_in_hand_are_answered_and_streams_end_when_the_server_is_told_to(
    database_url: str, tmp_path: Path
) -> None:
    watched, written = sample_run(finished=False), sample_run(finished=False)
    with server(database_url, tmp_path) as told:
        async with httpx2.AsyncClient(base_url=told.address, timeout=PLENTY_SECONDS) as client:
            assert [await post(client, each) for each in (watched, written)] == [200, 200]
            async with client.stream("GET", f"/api/runs/{watched.root}/events") as stream:
                messages = stream.aiter_lines()
                await anext(messages)
                with held(database_url, written.root) as holding:
                    writing = asyncio.create_task(post(client, written))
                    await until_waiting(database_url, 1)
                    told.process.send_signal(signal.SIGTERM)
                    async for _ in messages:  # up to its orderly end
                        pass
                    assert not writing.done()
                    holding.commit()
                assert await writing == 200
            await ended(told)
            with pytest.raises(httpx2.ConnectError):
                await post(client, written)

    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log
    assert "recorder_closed" in log


@pytest.mark.skipif(not IS_LONG, reason="takes as long as the deadline")
async def test_a_write_that_does_not_end_holds_up_no_longer_than_the_deadline(
    database_url: str, tmp_path: Path
) -> None:
    run = sample_run(finished=False)
    with server(database_url, tmp_path) as told:
        async with httpx2.AsyncClient(base_url=told.address, timeout=PLENTY_SECONDS) as client:
            assert await post(client, run) == 200
            with held(database_url, run.root):
                writing = asyncio.create_task(post(client, run))
                await until_waiting(database_url, 1)
                told.process.send_signal(signal.SIGTERM)
                seconds = await ended(told)
            [answer] = await asyncio.gather(writing, return_exceptions=True)

    sys.stdout.write(f"ended {seconds:.1f} s after SIGTERM with a write that does not end\n")
    assert answer == 500 or isinstance(answer, httpx2.TransportError)
    assert seconds < DRAIN_SECONDS + CLOSING_SECONDS + 5
