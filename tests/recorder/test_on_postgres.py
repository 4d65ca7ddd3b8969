"""The recorder on a real database."""

import asyncio

import psycopg
import pytest

from tests.citus_databases import SHARDS, workers_of
from tests.recorder.plans import plan_started, plans_started
from tests.recorder.stores import PLENTY_SECONDS
from tracer.recorder import Recorder, Spool
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer


async def titles(database_url: str) -> list[str]:
    """Return what another connection sees."""
    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection:
        cursor = await connection.execute("SELECT title FROM plan_execution_record ORDER BY 1")
        return [title for (title,) in await cursor.fetchall()]


async def test_row_is_committed_when_record_returns(database_url: str, spool: Spool) -> None:
    async with (
        open_pool(database_url) as pool,
        Recorder(postgres_writer(ProjectPool(pool)), spool, patience=60) as recorder,
    ):
        await recorder.record(plan_started(recorder, title="Weekly review"))

        assert await titles(database_url) == ["Weekly review"]
        assert recorder.counts.spooled == 0


async def test_concurrent_calls_share_transactions(database_url: str, spool: Spool) -> None:
    async with (
        open_pool(database_url) as pool,
        Recorder(postgres_writer(ProjectPool(pool)), spool, patience=60) as recorder,
    ):
        await recorder.record(plan_started(recorder))
        before = await transactions(database_url)
        await asyncio.gather(*(recorder.record(each) for each in plans_started(recorder, 100)))

        assert len(await titles(database_url)) == 101
        groups = 3 * (SHARDS if workers_of(database_url) else 1)
        assert await transactions(database_url) - before <= groups


async def transactions(database_url: str) -> int:
    """Return how many different transactions wrote plans."""
    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection:
        cursor = await connection.execute(
            "SELECT count(DISTINCT xmin::text) FROM plan_execution_record"
        )
        [count] = await cursor.fetchone() or [0]
    return int(count)


@pytest.mark.parametrize("how", ["locked", "refusing connections"])
async def test_events_recorded_during_database_failures_are_all_stored_later(
    how: str, database_url: str, spool: Spool
) -> None:
    async with (
        open_pool(database_url) as pool,
        Recorder(postgres_writer(ProjectPool(pool)), spool, patience=0.1) as recorder,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
    ):
        await recorder.record(plan_started(recorder, title="Before"))
        before = recorder.counts.spooled  # on a machine that is busy, it may be
        if how == "locked":
            await other.execute("BEGIN; LOCK TABLE run")
        else:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        events = plans_started(recorder, 20)
        async with asyncio.timeout(PLENTY_SECONDS):
            for event in events:
                await recorder.record(event)
        if how == "locked":
            assert recorder.counts.spooled - before == 20
            await other.execute("COMMIT")

    assert sorted(await titles(database_url)) == sorted(
        ["Before", *(event.title or "" for event in events)]
    )
    assert await spool.count() == 0
    assert recorder.counts.dropped == 0
