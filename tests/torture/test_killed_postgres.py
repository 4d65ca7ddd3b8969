"""Postgres is killed every few seconds under concurrent writers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import psycopg

from api.commands import database
from tests.databases import open_directory
from tests.storage.postgres.pending_runs import until_projected
from tests.torture.lengths import EVENTS, KILLS, say
from tests.torture.load import WRITERS, Difference, deliver, difference, disturb, load_of
from tests.torture.private_postgres import kill_postgres, private_postgres
from tracer.settings import read_settings
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.processes import projectors
from tracer.storage.postgres.reader import PostgresReader


async def test_events_acknowledged_by_a_killed_postgres_are_stored_once() -> None:
    load = load_of(EVENTS)
    with private_postgres() as postgres:

        async def kill(number: int) -> None:
            if number % 2 == 0:
                await asyncio.to_thread(postgres.kill)
                await asyncio.to_thread(postgres.start)
            else:
                await asyncio.to_thread(postgres.kill_a_session)

        async with AsyncExitStack() as pools:
            # Each as a server of its own: they share the database alone.
            servers = [
                ProjectPool(await pools.enter_async_context(open_pool(postgres.url)))
                for _ in range(2)
            ]
            by_server = [postgres_writer(server) for server in servers]
            await pools.enter_async_context(projectors(postgres.url, 2))
            async with asyncio.TaskGroup() as group:
                group.create_task(disturb(load, KILLS, kill))
                group.create_task(deliver(load, by_server * (WRITERS // 2)))
            took = load.seconds
            await until_projected(postgres.url)
            found = await difference(load, PostgresReader(servers[0]))

    say("kill -9 of Postgres under load", **load.figures(took), **found.figures())
    assert found == Difference(lost=0, duplicated=0)
    assert load.failures > 0


async def test_killed_embedded_postgres_is_restarted() -> None:
    with open_directory() as home:
        settings = read_settings(home=home)
        async with database.database(settings, migrated=False, look_seconds=0.1) as url:
            for _ in range(2):
                await asyncio.to_thread(kill_postgres, home)
                async with asyncio.timeout(60):
                    while not await asyncio.to_thread(answers, url):
                        continue
        assert not answers(url)


def answers(url: str) -> bool:
    """Return whether a database lets anybody in."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
