"""A process that records while its store is down, and is killed right after.

Usage: python -m tests.recorder.spooling_process SPOOL NUMBER
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.recorder.plans import plans_started
from tests.recorder.stores import CommandedStore
from tracer.recorder import Recorder, Spool
from tracer.records.events import event_json


async def record(path: Path, number: int) -> None:
    store = CommandedStore()
    store.down = True
    async with Recorder(store, Spool(path)) as recorder:
        for event in plans_started(recorder, number):
            await recorder.record(event)
            os.write(1, event_json(event) + b"\n")
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(record(Path(sys.argv[1]), int(sys.argv[2])))
