"""Hourly roll-ups: statistics equal a count of the calls after any change, and do not block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest
from hypothesis import given, settings

from tests.contract.moments import Moments
from tests.otel.made_traces import agent, tool
from tests.profiles import scaled
from tests.projecting import roll_up
from tests.storage.postgres.call_histories import (
    NOW,
    CallHistory,
    Happening,
    Pruned,
    Reaped,
    Sent,
    Written,
    beginnings,
    happenings,
)
from tests.storage.postgres.deletions import rows
from tests.storage.postgres.lock_waits import until_waiting
from tracer.clock import utc_now
from tracer.records import DEFAULT_PROJECT_ID, new_id
from tracer.records.events import Event
from tracer.records.pages import TimeRange
from tracer.storage.postgres import (
    Pool,
    PostgresWriter,
    ProjectPool,
    postgres_writer,
    rollups,
    sync_connection,
)
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.projects import ensure_project
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.rollups import Sums

EVER = TimeRange()
BEGAN = utc_now()


async def record_call(writer: PostgresWriter, run: Moments, days: float = 10) -> None:
    """Record one more call, some days ago."""
    call = run.call_started(tool_call_id=new_id())
    at = BEGAN - timedelta(days=days)
    answer = await writer.write([call.model_copy(update={"at": at})])
    assert answer.refused == []


async def calls(reader: PostgresReader) -> int:
    return sum(tool.calls for tool in (await reader.read_tool_stats(EVER)).items)


def ago(event: Event, days: float) -> Event:
    return event.model_copy(update={"at": NOW - timedelta(days=days)})


@asynccontextmanager
async def held(url: str, table: str) -> AsyncIterator[None]:
    """Hold locks of all rows of a table."""
    async with await psycopg.AsyncConnection.connect(url) as somebody:
        await somebody.execute(f"SELECT FROM {table} FOR UPDATE".encode())
        yield
        await somebody.rollback()


@pytest.mark.thorough
@settings(max_examples=scaled(60))
@given(before=beginnings, history=happenings)
async def test_tool_statistics_equal_a_recount_after_any_history(
    pool: Pool, before: list[Happening], history: list[Happening]
) -> None:
    project = await CallHistory.new(pool)
    for each in before:
        await project.happens(each)
    await project.run_once(EVER)
    for each in history:
        await project.happens(each)
    await project.run_once(EVER)


async def test_tool_statistics_include_every_kind_of_change(pool: Pool) -> None:
    project = await CallHistory.new(pool)
    run, late, other = Moments(), Moments(), new_id()
    minute = 1 / 24 / 60
    begin = NOW.timestamp() - 20 * 86_400
    changes: list[Happening] = [
        Written((ago(run.plan_started(), 10), ago(run.call_started(), 10)), 0),
        Written((ago(run.call_finished(), 10 - minute),), 0),
        Written((ago(late.call_started(), 10), ago(late.call_started(tool_call_id=other), 8)), 0),
        # The earlier of two starts counts: the call moves to another hour.
        Written((ago(late.call_started(), 12),), 0),
        Written((ago(run.sub_plan_started(new_id(), run.call), 1),), 0),
        Sent(0, (agent(1, "nurse", at=(begin, None)),), 0),
        Sent(0, (tool(2, "measure", parent=1, at=(begin, None)),), 0),
        Sent(0, (tool(2, "measure", parent=1, at=(begin, begin + 90_000), failed="no"),), 0),
        Reaped(10),
        Pruned(),
    ]
    seen = set()
    for change in changes:
        await project.happens(change)
        await project.run_once(EVER)
        page, histories = await project.read(EVER)
        seen.add(str((page.items, [each.buckets for each in histories.values()])))
    assert len(seen) == len(changes) - 1  # an agent alone is no call


async def test_rolled_up_hours_are_combined_with_live_counts(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    assert (await reader.read_tool_stats(EVER)).as_of is None
    await record_call(writer, Moments())
    assert await calls(reader) == 1  # before the first pass
    [(before,)] = await rows(pool, "SELECT now()")
    await roll_up(pool)
    as_of = (await reader.read_tool_stats(EVER)).as_of
    [(after,)] = await rows(pool, "SELECT now()")
    assert as_of is not None
    assert before <= as_of <= after

    await record_call(writer, Moments())
    await record_call(writer, Moments(), days=0)

    assert await calls(reader) == 2
    await roll_up(pool)
    assert await calls(reader) == 3


async def test_percentiles_of_rolled_up_calls_do_not_exceed_the_slowest_call(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    run, begin = Moments(), BEGAN - timedelta(days=10)
    for milliseconds in (100, 400, 400):
        end, call = begin + timedelta(milliseconds=milliseconds), new_id()
        started = run.call_started(tool_call_id=call).model_copy(update={"at": begin})
        finished = run.call_finished(tool_call_id=call).model_copy(update={"at": end})
        assert (await writer.write([started, finished])).refused == []
    await roll_up(pool)

    [found] = (await reader.read_tool_stats(EVER)).items

    assert (found.p50_ms, found.p99_ms, found.own_p99_ms) == (400, 400, 400)


async def test_deleting_a_run_subtracts_its_calls_from_the_roll_ups_immediately(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    run = Moments()
    await record_call(writer, run)
    await record_call(writer, Moments())
    await roll_up(pool)
    await writer.delete_run(run.root)
    assert await calls(reader) == 1
    assert await rows(pool, "SELECT FROM run_group WHERE root_plan_id = %s", run.root) == []


async def test_an_unchanged_run_is_not_rolled_up_again(pool: Pool, writer: PostgresWriter) -> None:
    run = Moments()
    for days in (3, 5):
        await record_call(writer, run, days)
    assert await roll_up(pool) == 2
    assert await roll_up(pool) == 0
    await record_call(writer, run, 5)
    assert await roll_up(pool) == 1  # the other hour is the same


@pytest.mark.thorough
async def test_write_during_a_roll_up_is_neither_blocked_nor_lost(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, database_url: str
) -> None:
    run = Moments()
    await record_call(writer, run)
    await roll_up(pool)
    await record_call(writer, run)
    async with held(database_url, "tool_hour"):
        job = asyncio.create_task(roll_up(pool))
        await until_waiting(database_url, 1)  # after it has read the calls
        await record_call(writer, run)
        assert await roll_up(pool) == 0  # another server does not wait
    await job
    await roll_up(pool)
    assert await calls(reader) == 3


@pytest.mark.thorough
async def test_roll_up_visits_a_run_again_after_its_writer_commits(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, database_url: str
) -> None:
    run = Moments()
    await record_call(writer, run)
    async with held(database_url, "run"):
        job = asyncio.create_task(roll_up(pool))
        await until_waiting(database_url, 1)  # to note the revision
        writing = asyncio.create_task(record_call(writer, run))
        await until_waiting(database_url, 2)
    await asyncio.gather(job, writing)
    await roll_up(pool)
    assert await calls(reader) == 2


@pytest.mark.thorough
async def test_concurrent_writers_and_roll_up_jobs_count_every_call(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    runs = [Moments() for _ in range(3)]
    others = [postgres_writer(ProjectPool(pool)) for _ in runs]
    is_over = False

    async def write(run: Moments, with_: PostgresWriter) -> None:
        for number in range(25):
            await record_call(with_, run, days=2 + number % 5)

    async def roll_up_again() -> None:
        while not is_over:
            await roll_up(pool)

    jobs = [asyncio.create_task(roll_up_again()) for _ in range(2)]
    await asyncio.gather(*map(write, runs, others))
    is_over = True
    await asyncio.gather(*jobs)
    await roll_up(pool)
    assert await calls(reader) == 75
    assert await rows(pool, "SELECT sum(calls)::int FROM tool_hour") == [(75,)]


async def test_roll_up_pass_ends_while_new_runs_arrive(pool: Pool, writer: PostgresWriter) -> None:
    for _ in range(3):
        await record_call(writer, Moments())
    loop, batches = asyncio.get_running_loop(), 0

    def roll_up_one_by_one() -> None:
        nonlocal batches
        with sync_connection(pool.options) as connection:
            for _ in rollups.roll_up(connection, DEFAULT_PROJECT_ID, 1):
                batches += 1
                record = record_call(writer, Moments())
                asyncio.run_coroutine_threadsafe(record, loop).result()

    await asyncio.to_thread(roll_up_one_by_one)
    assert batches == 3


async def test_a_pass_covers_all_projects_and_is_not_repeated_within_a_minute(
    pool: Pool, writer: PostgresWriter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ward = await ensure_project(pool, "ward")
    await record_call(writer, Moments())
    await record_call(postgres_writer(ProjectPool(pool, ward)), Moments())

    def batches() -> list[bool]:
        with sync_connection(pool.options) as connection:
            sums = Sums(connection)
            return [sums.add_due() for _ in range(3)]

    assert await asyncio.to_thread(batches) == [True, True, False]

    found = await rows(pool, "SELECT project_id FROM tool_hour ORDER BY 1")
    assert found == [(1,), (ward,)]
    assert "hours_summed" in caplog.text
    await record_call(writer, Moments())
    assert await asyncio.to_thread(batches) == [False] * 3


async def test_one_project_that_cannot_be_rolled_up_does_not_stop_the_others(
    pool: Pool,
    writer: PostgresWriter,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ward = await ensure_project(pool, "ward")
    inner = rollups.roll_up

    def fail_for_first(session: SyncConnection, project_id: int) -> Iterator[int]:
        if project_id != ward:
            raise ValueError
        return inner(session, project_id)

    monkeypatch.setattr(rollups, "roll_up", fail_for_first)
    await record_call(postgres_writer(ProjectPool(pool, ward)), Moments())

    with sync_connection(pool.options) as connection:
        assert await asyncio.to_thread(Sums(connection).add_due)

    assert "hours_not_summed" in caplog.text
    assert await rows(pool, "SELECT project_id FROM tool_hour") == [(ward,)]
