"""A process whose agent calls a tool that never ends: `hanging_process DATABASE_URL DIRECTORY`."""

import asyncio
import sys
from pathlib import Path

from tests.runtime.runs import application, bench, script
from tracer.context import ToolContext
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.tools import tool


@tool
async def hang(why: str, context: ToolContext) -> None:
    """Hangs."""
    sys.stdout.write(f"{context.toolcallId}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def main(database_url: str, directory: Path) -> None:
    calls = [call("hang", {"why": "no reason"}), call("hang", {"why": "queues"})]
    model = ScriptedModel([script("Hang", calls)])
    async with open_pool(database_url) as pool:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        hanging = application(model, [hang], max_parallel=1)
        # With the default patience, a slow machine could leave the first events in the spool only.
        async with bench(hanging, writer, reader, directory, patience=60) as on:
            await on.launcher.run("Hang", agent="worker")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
