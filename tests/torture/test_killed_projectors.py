"""Projectors and Postgres sessions are killed while two servers accept spans."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import orjson
import psycopg

from tests.storage.postgres.lock_waits import until
from tests.storage.postgres.pending_runs import pending, until_living, until_projected
from tests.torture.lengths import EVENTS, KILLS, say
from tests.torture.load import WRITERS, Difference, deliver, difference, disturb, load_of
from tracer.records import DEFAULT_TERMS
from tracer.storage.postgres import (
    Notify,
    PostgresWriter,
    ProjectPool,
    RunWatch,
    WriterOptions,
    notifications,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.processes import ProjectorOptions, projectors
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.spans import MOST_ATTEMPTS

SPANS = 3 * EVENTS
PROJECTORS = 3
MOST_KILLS = 3 * KILLS
LONGEST_WORK = 0.1
"""A projector is killed up to so many seconds after it began with a group of runs."""

_ATTEMPTS = "SELECT coalesce(max(attempts), 0) FROM pending_run"

_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY random() LIMIT 1"""

_FAILED = "SELECT count(*) FROM run WHERE projection_error IS NOT NULL"


@dataclass
class Killer:
    """Runs projectors, and kills them while they work on a group of runs."""

    url: str
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    kills: int = 0

    async def keep_one_running(self) -> None:
        """Run one projector after another until cancelled."""
        options = ProjectorOptions.of(self.url, DEFAULT_TERMS)
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tracer.storage.postgres.processes"),
                stdin=PIPE,
                stdout=PIPE,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(orjson.dumps(options, option=orjson.OPT_APPEND_NEWLINE))
                async for line in process.stdout:
                    if orjson.loads(line)["is_begin"] and await self._is_to_kill():
                        await asyncio.sleep(self.chance.uniform(0, LONGEST_WORK))
                        self.kills += 1
                        break
            finally:
                process.kill()
                await process.wait()

    async def _is_to_kill(self) -> bool:
        """Return whether to kill now: not if a run would then count as one that kills."""
        [(attempts,)] = await asyncio.to_thread(_execute, self.url, _ATTEMPTS)
        return not self.is_done and attempts < MOST_ATTEMPTS - 1 and self.chance.random() < 0.8

    @property
    def is_done(self) -> bool:
        """Whether it has killed as many as it is meant to."""
        return self.kills >= MOST_KILLS


async def test_killed_projectors_neither_lose_nor_duplicate_records(database_url: str) -> None:
    load = load_of(events=0, spans=SPANS)
    killer = Killer(database_url)

    async def terminate(_: int) -> None:
        await asyncio.to_thread(_execute, database_url, _TERMINATE)

    async with AsyncExitStack() as servers:
        writers = [await servers.enter_async_context(_server(database_url)) for _ in range(2)]
        running = [asyncio.create_task(killer.keep_one_running()) for _ in range(PROJECTORS)]
        await until_living(database_url, PROJECTORS)
        async with asyncio.TaskGroup() as group:
            group.create_task(disturb(load, KILLS, terminate))
            group.create_task(deliver(load, writers * (WRITERS // 2)))
        took = load.seconds

        async def is_over() -> bool:
            return killer.is_done or not await pending(database_url)

        await until(is_over)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
    # A restart.
    async with projectors(database_url, 2), open_pool(database_url) as pool:
        await until_projected(database_url)
        found = await difference(load, PostgresReader(ProjectPool(pool)))
    failed = await asyncio.to_thread(_execute, database_url, _FAILED)

    figures = {**load.figures(took), "killed at work": killer.kills, **found.figures()}
    say("kill -9 of projectors under load", **figures)
    assert found == Difference(lost=0, duplicated=0)
    assert failed == [(0,)]
    assert killer.kills > 0


@asynccontextmanager
async def _server(url: str) -> AsyncIterator[PostgresWriter]:
    """Give the writer of a server, which shares the database alone with others."""
    async with (
        open_pool(url) as pool,
        RunWatch(PostgresReader(ProjectPool(pool))) as watch,
        notifications(pool, url, watch) as (on_written, on_accepted),
    ):
        yield postgres_writer(
            ProjectPool(pool),
            WriterOptions(notify=Notify(written=on_written, accepted=on_accepted)),
        )


def _execute(url: str, query: str) -> list[tuple[int, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()
