"""A full disk does not stop the agent, and the events in the spool are delivered once."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.plans import plan_started
from tests.recorder.stores import CommandedStore
from tests.torture.small_disk import mounted
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool

REPOSITORY = Path(__file__).parents[2]
DISK_BYTES = 6 * 2**20


async def run_process(path: Path, events: int, how: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.recorder.full_disk_process", str(path), str(events), how),
        cwd=REPOSITORY,
        stdout=PIPE,
        stderr=PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-4000:]
    assert b"Traceback" not in errors
    result: dict[str, Any] = json.loads(output)
    assert result["spooled"] + result["dropped"] == events
    assert result["delivered"] == result["different"] == result["drained"] == result["spooled"] > 0
    spool = Spool(path)
    assert await spool.count() == 0
    await spool.close()
    return result


@pytest.mark.parametrize("how", ["full", "taken"])
async def test_spool_on_a_full_disk_is_delivered_once(how: str, tmp_path: Path) -> None:
    with mounted(tmp_path, DISK_BYTES):
        result = await run_process(tmp_path / "spool" / "events.db", 1000, how)
        assert result["dropped"] > 0


async def test_spool_that_cannot_be_written_is_delivered_once_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "spool" / "events.db"
    result = await run_process(path, 100, "unwritable")

    assert result["dropped"] == 0
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("max_bytes", [2**15, 100_000, 2**20])
async def test_full_spool_can_be_delivered_and_emptied(
    max_bytes: int, store: CommandedStore, spool_path: Path
) -> None:
    sizes = random.Random(max_bytes)
    spool = Spool(spool_path, max_bytes=max_bytes)
    recorder = Recorder(store, spool)
    kept = []
    for _ in range(300):
        title = "x" * sizes.choice([10, 100, 1000, 3000, 20_000])
        kept += (await spool.append([plan_started(recorder, title)])).ids
    sizes.shuffle(kept)
    for spool_id in kept:
        assert await spool.remove([spool_id]) == 1

    assert 0 < len(kept) < 300
    assert await spool.count() == 0
    await spool.close()
