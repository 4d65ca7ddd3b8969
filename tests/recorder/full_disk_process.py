"""Record until the disk is full, then send the events that were kept, in bounded memory.

Usage: python -m tests.recorder.full_disk_process SPOOL EVENTS
"""

import asyncio
import json
import resource
import sys
from pathlib import Path

from tests.recorder.plans import plan_started
from tests.recorder.stores import PLENTY_SECONDS, CommandedStore
from tracer.recorder import Recorder, Spool

EVENT_BYTES = 9_000
MEMORY_BYTES = 256 * 2**20
"""The memory that the process may use in addition to that of its imports."""


async def record(path: Path, events: int) -> None:
    store, spool = CommandedStore(), Spool(path)
    async with Recorder(store, spool) as recorder:
        store.down = True
        for _ in range(events):
            await recorder.record(plan_started(recorder, "x" * EVENT_BYTES))
        store.down = False
        async with asyncio.timeout(PLENTY_SECONDS):
            while await spool.count():  # noqa: ASYNC110 - the recorder empties it
                await asyncio.sleep(0.01)
    counts = recorder.counts
    sys.stdout.write(
        json.dumps(
            {
                "spooled": counts.spooled,
                "dropped": counts.dropped,
                "drained": counts.drained,
                "delivered": len(store.events),
                "different": len({event.root_plan_id for event in store.events}),
            }
        )
    )


def bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


if __name__ == "__main__":
    bound_memory()
    asyncio.run(record(Path(sys.argv[1]), int(sys.argv[2])))
