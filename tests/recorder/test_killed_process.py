"""Events survive `kill -9` once `record` has returned."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.recorder.stores import CommandedStore
from tracer.recorder import Recorder, Spool
from tracer.records.events import EVENT, Event

REPOSITORY = Path(__file__).parents[2]


async def killed_process(path: Path, number: int) -> list[Event]:
    """Let a process record into the spool and be killed; return what it had recorded."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.recorder.spooling_process",
        str(path),
        str(number),
        cwd=REPOSITORY,
        stdout=PIPE,
        stderr=PIPE,
    )
    written, said = await process.communicate()
    assert process.returncode == -signal.SIGKILL, said.decode()
    return [EVENT.validate_json(line) for line in written.splitlines()]


async def test_next_process_delivers_the_spool_of_a_killed_one(
    store: CommandedStore, spool: Spool, spool_path: Path
) -> None:
    events = await killed_process(spool_path, 20)
    async with Recorder(store, spool) as recorder:
        await store.holds(events)

    assert store.events == events
    assert len(events) == recorder.counts.drained == 20
    assert await spool.count() == 0


@pytest.mark.thorough
async def test_processes_that_create_one_spool_concurrently_lose_no_event(
    store: CommandedStore, spool: Spool, spool_path: Path
) -> None:
    left = await asyncio.gather(*(killed_process(spool_path, 5) for _ in range(3)))
    events = [event for of_one in left for event in of_one]
    async with Recorder(store, spool):
        await store.holds(events)

    assert len(store.events) == len(events) == 15
