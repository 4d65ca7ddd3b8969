"""Leases in Postgres: reapers share the work and never wait for writers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tests.contract.living import TERMS, Living, postgres_living
from tests.contract.moments import Moments
from tests.contract.test_leases import by, in_flight, statuses
from tracer.records import LeaseTerms, new_id
from tracer.storage.postgres import (
    Pool,
    PostgresWriter,
    ProjectPool,
    WriterOptions,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.jobs import Reaper
from tracer.storage.postgres.leases import AT_ONCE
from tracer.store import RunFilter


@pytest.fixture
async def store(pool: Pool) -> Living:
    return await postgres_living(pool)


async def left_of_leases(pool: Pool) -> tuple[int, int]:
    async with pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT (SELECT count(*) FROM recorder_lease), (SELECT count(*) FROM recorder_run)"
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.thorough
async def test_concurrent_reapers_mark_each_run_once(store: Living, pool: Pool) -> None:
    recorder_id = new_id()
    runs = [Moments() for _ in range(2 * AT_ONCE + 50)]
    for run in runs:
        await store.record(*by(recorder_id, run.plan_started(0)))
    before = await store.reader.read_revisions([run.root for run in runs])
    notified: list[UUID] = []
    reapers = [Reaper(pool, TERMS, notified.extend, store.clock) for _ in range(4)]
    await store.pass_time(59)
    store.clock.move(1)

    await asyncio.gather(*(reaper.run_once() for reaper in reapers))

    abandoned = await store.reader.list_runs(RunFilter(status="abandoned"), 500, None)
    assert {run.root_plan_id for run in abandoned.items} == {run.root for run in runs}
    after = await store.reader.read_revisions([run.root for run in runs])
    assert after == {run_id: revision + 1 for run_id, revision in before.items()}
    assert sorted(notified) == sorted(run.root for run in runs)


@pytest.mark.thorough
async def test_reaper_skips_rows_that_a_writer_has_locked(store: Living, database_url: str) -> None:
    recorder_id = new_id()
    held, free = await in_flight(store, recorder_id), await in_flight(store, recorder_id)
    async with await psycopg.AsyncConnection.connect(database_url) as writer:
        await writer.execute("SELECT FROM run WHERE root_plan_id = %s FOR UPDATE", [held.root])
        async with asyncio.timeout(60):
            await store.pass_time(60)
        assert (await statuses(store, free))["run"] == "abandoned"
        assert (await statuses(store, held))["run"] == "running"

    await store.pass_time(1)
    assert (await statuses(store, held))["run"] == "abandoned"


@pytest.mark.thorough
async def test_recorders_starting_and_ending_do_not_deadlock(database_url: str) -> None:
    async with open_pool(database_url) as pool:
        await come_and_go(pool)

    # The pool's connections have told what they met when they ended.
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        assert await cursor.fetchone() == (0,)


async def come_and_go(pool: Pool) -> None:
    """Write and renew while leases run out and reapers look."""
    terms = LeaseTerms(timedelta(milliseconds=60), timedelta(milliseconds=60))
    writers = [postgres_writer(ProjectPool(pool), WriterOptions(terms=terms)) for _ in range(3)]
    recorders = [new_id() for _ in range(3)]
    runs = [Moments() for _ in range(6)]
    is_over = asyncio.Event()

    async def write(writer: PostgresWriter) -> None:
        for turn in range(40):
            for recorder_id in recorders:
                events = by(recorder_id, *(run.call_started(turn) for run in runs))
                assert (await writer.write(events)).refused == []
            await writer.renew(recorders[turn % 3])

    async def reap() -> None:
        while not is_over.is_set():
            await Reaper(pool, terms).run_once()

    reaping = [asyncio.create_task(reap()) for _ in range(2)]
    await asyncio.gather(*(write(writer) for writer in writers))
    is_over.set()
    await asyncio.gather(*reaping)


@pytest.mark.thorough
async def test_leases_without_open_records_are_deleted(store: Living, pool: Pool) -> None:
    recorder_id, run = new_id(), Moments()
    await store.record(*by(recorder_id, run.plan_started(0), run.plan_finished(1)))
    await store.writer.renew(new_id())
    assert await left_of_leases(pool) == (2, 1)
    revision = (await store.reader.read_run(run.root)).revision

    await store.pass_time(60)

    assert await left_of_leases(pool) == (0, 0)
    assert (await store.reader.read_run(run.root)).revision == revision


@pytest.mark.thorough
async def test_lease_is_stored_until_its_last_run_is_deleted(store: Living, pool: Pool) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.pass_time(100)
    assert await left_of_leases(pool) == (1, 1)

    await store.writer.delete_run(run.root)
    await store.pass_time(3600)
    assert await left_of_leases(pool) == (0, 0)


async def test_leases_use_the_clock_of_the_database(pool: Pool) -> None:
    times = []
    for _ in range(2):
        writer = postgres_writer(ProjectPool(pool), WriterOptions(terms=TERMS))
        times.append((await writer.renew(new_id())).seen_at)
        await Reaper(pool, TERMS).run_once()
        async with pool.connection() as connection:
            cursor = await connection.execute("SELECT served_at FROM lease_check")
            times += [served_at for (served_at,) in await cursor.fetchall()]
    assert times == sorted(times)


async def test_restarted_server_continues_the_checks_of_leases(store: Living, pool: Pool) -> None:
    run = await in_flight(store, new_id())
    await store.pass_time(59)
    store.clock.move(1)

    await Reaper(pool, TERMS, clock=store.clock).run_once()

    assert (await statuses(store, run))["run"] == "abandoned"


async def test_server_restarted_after_a_lease_waits_for_a_full_lease(
    store: Living, pool: Pool
) -> None:
    run = await in_flight(store, new_id())
    store.clock.move(300)
    restarted = replace(store, reaper=Reaper(pool, TERMS, clock=store.clock))

    await restarted.pass_time(0)
    await restarted.pass_time(59)
    assert (await statuses(store, run))["run"] == "running"
    await restarted.pass_time(1)
    assert (await statuses(store, run))["run"] == "abandoned"


async def test_server_that_was_away_for_half_a_lease_waits_for_a_full_lease(
    store: Living, pool: Pool
) -> None:
    run = await in_flight(store, new_id())
    await store.pass_time(29)
    store.clock.move(31)
    restarted = replace(store, reaper=Reaper(pool, TERMS, clock=store.clock))

    await restarted.pass_time(0)
    assert (await statuses(store, run))["run"] == "running"
    await restarted.pass_time(59)
    await restarted.pass_time(1)
    assert (await statuses(store, run))["run"] == "abandoned"
