"""The server and its projectors are killed while programs record to it over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from tests.storage.postgres.pending_runs import until_projected
from tests.torture.forked_server import forked_server
from tests.torture.lengths import EVENTS, KILLS, say
from tests.torture.load import WRITERS, Difference, deliver, difference, disturb, load_of
from tracer.storage.http import HttpWriter
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.reader import PostgresReader


async def test_events_acknowledged_by_a_killed_server_are_stored_once(
    database_url: str, tmp_path: Path
) -> None:
    load = load_of(EVENTS)
    with forked_server(database_url, tmp_path, projectors=2) as server:

        async def kill(number: int) -> None:
            await asyncio.to_thread(server.kill_a_projector)
            if number % 2 == 0:
                server.kill()
                await asyncio.to_thread(server.start)

        async with AsyncExitStack() as programs:
            writers = [
                await programs.enter_async_context(aclosing(HttpWriter(server.address)))
                for _ in range(WRITERS)
            ]
            async with asyncio.TaskGroup() as group:
                group.create_task(disturb(load, KILLS, kill))
                group.create_task(deliver(load, writers))
            took = load.seconds
        await until_projected(database_url)
    async with open_pool(database_url) as pool:
        found = await difference(load, PostgresReader(ProjectPool(pool)))

    say("kill -9 of the server under load", **load.figures(took), **found.figures())
    assert found == Difference(lost=0, duplicated=0)
    assert load.failures > 0
