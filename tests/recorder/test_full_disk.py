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
from tracer.recorder import Recorder, Spool

REPOSITORY = Path(__file__).parents[2]
DISK_BYTES = 6 * 2**20


async def run_process(path: Path, events: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.recorder.full_disk_process", str(path), str(events)),
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


async def test_spool_that_filled_the_disk_is_delivered_once(tmp_path: Path) -> None:
    with mounted(tmp_path, DISK_BYTES):
        result = await run_process(tmp_path / "spool" / "events.db", 1000)
        assert result["dropped"] > 0


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
