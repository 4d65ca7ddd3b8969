"""Processes notify each other of writes, and polling finds writes without a notification."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from tests.contract.moments import Moments
from tracer.storage.postgres import (
    Notify,
    Pool,
    PostgresWriter,
    ProjectPool,
    RunWatch,
    WriterOptions,
    notifications,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.reader import PostgresReader

PATIENCE = 240.0
NEVER = 3600.0
NOBODY = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1"

LISTENERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'"""


@asynccontextmanager
async def process(
    url: str, pool: Pool, heard_at: str | None = None, poll_seconds: float = NEVER
) -> AsyncIterator[tuple[PostgresWriter, RunWatch]]:
    """Give a writer and a watch, as each process has its own."""
    reader = PostgresReader(ProjectPool(pool))
    async with (
        RunWatch(reader, poll_seconds) as watch,
        notifications(pool, heard_at or url, watch) as (written, _),
    ):
        yield (
            postgres_writer(ProjectPool(pool), WriterOptions(notify=Notify(written=written))),
            watch,
        )


async def listens(url: str, than: int | None = None) -> int:
    """Return the process id of the connection that listens, as soon as there is another one."""
    async with asyncio.timeout(PATIENCE), await psycopg.AsyncConnection.connect(url) as connection:
        while True:
            found = await (await connection.execute(LISTENERS)).fetchall()
            for (pid,) in found:
                if pid != than:
                    return int(pid)
            await connection.rollback()
            await asyncio.sleep(0.01)


async def woken_by(write: PostgresWriter, run: Moments, woken: asyncio.Event) -> None:
    """Write, and return when a watcher was woken: thrice, since the first poll wakes it too."""
    for _ in range(3):
        woken.clear()
        await write.write([run.call_started()])
        async with asyncio.timeout(PATIENCE):
            await woken.wait()


async def test_write_wakes_watchers_of_another_process(database_url: str, pool: Pool) -> None:
    run = Moments()
    async with (
        process(database_url, pool) as (writer, _),
        process(database_url, pool) as (_, watch),
    ):
        with watch.watching(run.root) as woken:
            await listens(database_url)
            await woken_by(writer, run, woken)


async def test_disconnected_listener_listens_again(database_url: str, pool: Pool) -> None:
    run = Moments()
    async with (
        process(database_url, pool) as (writer, _),
        process(database_url, pool) as (_, watch),
    ):
        with watch.watching(run.root) as woken:
            pid = await listens(database_url)
            with psycopg.connect(database_url) as connection:
                connection.execute("SELECT pg_terminate_backend(%s::integer)", [pid])
            await listens(database_url, than=pid)
            await woken_by(writer, run, woken)


async def test_foreign_notifications_are_ignored(database_url: str, pool: Pool) -> None:
    run = Moments()
    async with (
        process(database_url, pool) as (writer, _),
        process(database_url, pool) as (_, watch),
    ):
        with watch.watching(run.root) as woken:
            pid = await listens(database_url)
            with psycopg.connect(database_url) as connection:
                connection.execute("NOTIFY tracer_runs, 'somebody says nonsense'")
                connection.execute("NOTIFY tracer_runs")
            await listens(database_url, than=pid)
            await woken_by(writer, run, woken)


async def test_notifications_of_many_runs_have_a_bounded_size(
    database_url: str, pool: Pool
) -> None:
    runs = [Moments() for _ in range(500)]
    async with (
        process(database_url, pool) as (writer, _),
        process(database_url, pool) as (_, watch),
    ):
        with watch.watching(runs[0].root) as first, watch.watching(runs[-1].root) as last:
            await listens(database_url)
            first.clear()
            last.clear()
            await writer.write([run.plan_started() for run in runs])
            async with asyncio.timeout(PATIENCE):
                await first.wait()
                await last.wait()


async def test_watcher_in_the_writing_process_is_woken_without_a_listener(
    pool: Pool,
) -> None:
    run = Moments()
    async with process(NOBODY, pool) as (writer, watch):
        with watch.watching(run.root) as woken:
            await woken_by(writer, run, woken)


async def test_polling_finds_changes_without_notifications(database_url: str, pool: Pool) -> None:
    run = Moments()
    without_notify = postgres_writer(ProjectPool(pool))
    async with process(NOBODY, pool, poll_seconds=0.01) as (_, watch):
        with watch.watching(run.root) as woken:
            await woken_by(without_notify, run, woken)
            await without_notify.delete_run(run.root)
            woken.clear()
            async with asyncio.timeout(PATIENCE):
                await woken.wait()


COMPLAINTS = ("written_runs_not_told", "written_runs_not_heard", "watched_runs_not_read")


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    return [complaint for complaint in COMPLAINTS for each in said if complaint in each]


async def test_notification_outage_does_not_disturb_writers_or_watchers(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    run = Moments()
    async with open_pool(NOBODY, answer_seconds=0.1) as away:
        reader = PostgresReader(ProjectPool(away))
        async with (
            RunWatch(reader, poll_seconds=0.01) as watch,
            notifications(away, NOBODY, watch) as (written, _),
        ):
            with watch.watching(run.root):
                written([run.root])
                async with asyncio.timeout(PATIENCE):
                    while not set(COMPLAINTS) <= set(said := complaints(caplog)):  # noqa: ASYNC110 - a log
                        await asyncio.sleep(0.01)

    assert said.count("watched_runs_not_read") == 1


async def test_last_write_is_notified_before_shutdown(database_url: str, pool: Pool) -> None:
    run = Moments()
    async with process(database_url, pool) as (_, watch):
        with watch.watching(run.root) as woken:
            await listens(database_url)
            async with process(database_url, pool) as (writer, _):
                woken.clear()
                await writer.write([run.plan_started()])
            async with asyncio.timeout(PATIENCE):
                await woken.wait()
