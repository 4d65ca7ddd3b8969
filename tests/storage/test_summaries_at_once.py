"""Summarisers, writers and readers at the same time: nothing is missed, and nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import psycopg
import pytest
from psycopg.errors import SerializationFailure

from tests.citus_databases import on_one_postgres
from tests.storage.deletions import rows
from tests.storage.lock_waits import until, until_waiting
from tests.store_contract.moments import Moments
from tracer.clock import Clock, utc_now
from tracer.ids import new_id
from tracer.storage.engine import Pool
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool, in_project
from tracer.storage.projects import project_made
from tracer.storage.summariser import Summariser, turns
from tracer.storage.summing_statements import BEGIN, TAKE
from tracer.tool_stats import TimeRange

pytestmark = on_one_postgres

EVER = TimeRange()
BEGAN = utc_now()


async def summed(pool: Pool, clock: Clock | None = None) -> int:
    """Sum up all there is, and return in how many turns."""
    return len([each async for each in turns(ProjectPool(pool), clock)])


async def called(writer: PostgresWriter, run: Moments, days: float = 10) -> None:
    """Record one more call, some days ago."""
    call = run.call_started(tool_call_id=new_id())
    at = BEGAN - timedelta(days=days)
    answer = await writer.write([call.model_copy(update={"at": at})])
    assert answer.refused == []


async def calls(reader: PostgresReader) -> int:
    return sum(tool.calls for tool in await reader.read_tool_stats(EVER))


@asynccontextmanager
async def held(url: str, rows: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """Hold locks of some rows."""
    async with await psycopg.AsyncConnection.connect(url) as somebody:
        await somebody.execute(f"SELECT FROM {rows} FOR UPDATE".encode())
        yield somebody


@pytest.mark.thorough
async def test_a_write_while_its_hour_is_summed_up_leaves_its_mark(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, database_url: str
) -> None:
    run = Moments()
    await called(writer, run)
    await summed(pool)
    await called(writer, run)
    async with held(database_url, "summed_calls") as somebody:
        summing = asyncio.create_task(summed(pool))
        await until_waiting(database_url, 1)
        await called(writer, run)  # waits for nobody
        assert await calls(reader) == 3
        assert await summed(pool) == 0  # nor does another summariser
        await somebody.rollback()
    await summing
    assert await calls(reader) == 3
    await summed(pool)
    assert await rows(pool, "SELECT calls FROM summed_calls WHERE hours = 1") == [(3,)]
    assert await rows(pool, "SELECT FROM changed_hour") == []


@pytest.mark.thorough
async def test_no_hour_is_summed_up_that_a_transaction_may_take_for_young(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, database_url: str
) -> None:
    run = Moments()
    await called(writer, run)

    def ahead() -> datetime:
        return utc_now() + timedelta(hours=8)

    async with held(database_url, "run") as somebody:
        writing = asyncio.create_task(called(writer, run, days=0.95))
        await until_waiting(database_url, 1)
        await summed(pool, ahead)
        await somebody.rollback()
    await writing
    assert (
        await rows(pool, "SELECT FROM changed_hour WHERE hour > now() - '2 days'::interval") == []
    )
    assert await calls(reader) == 2
    await summed(pool, ahead)
    [(reaches,)] = await rows(pool, "SELECT until - now() > '-23 hours' FROM summed_range")
    assert reaches
    await called(writer, run, days=0.95)  # by a clock that is right again
    assert await calls(reader) == 3


@pytest.mark.thorough
async def test_who_saw_what_was_before_another_s_turn_sums_up_nothing(
    pool: Pool, writer: PostgresWriter
) -> None:
    await called(writer, Moments())
    project = ProjectPool(pool)
    given = {"project_id": project.project_id, "now": None, "oldest": None}
    await summed(pool)

    async def come_late() -> None:
        async with in_project(project, sees_one_state=True) as connection:
            await (await connection.execute("SELECT FROM act_tool_info")).fetchall()
            await called(writer, Moments())
            await summed(pool)
            await connection.execute(BEGIN, given)
            await (await connection.execute(TAKE, given)).fetchall()

    with pytest.raises(SerializationFailure):
        await come_late()


@pytest.mark.thorough
async def test_writers_and_summarisers_at_once_leave_nothing_out(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    runs = [Moments() for _ in range(3)]
    others = [PostgresWriter(ProjectPool(pool)) for _ in runs]
    is_over = False
    counted: list[int] = []

    async def write(run: Moments, with_: PostgresWriter) -> None:
        for number in range(25):
            await called(with_, run, days=2 + number % 5)

    async def sum_up() -> None:
        while not is_over:
            await summed(pool)

    async def read() -> None:
        while not is_over:
            counted.append(await calls(reader))

    rest = [asyncio.create_task(each()) for each in (sum_up, sum_up, read)]
    await asyncio.gather(*map(write, runs, others))
    is_over = True
    await asyncio.gather(*rest)
    assert await calls(reader) == 75
    assert counted == sorted(counted)
    await summed(pool)
    assert await rows(pool, "SELECT sum(calls)::int FROM summed_calls WHERE hours = 1") == [(75,)]


async def test_a_summariser_looks_after_all_projects_and_tells_the_log(
    pool: Pool, writer: PostgresWriter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ward = await project_made(pool, "ward")
    await called(writer, Moments())
    await called(PostgresWriter(ProjectPool(pool, ward)), Moments())
    summariser = Summariser(pool)
    await summariser.look()
    found = await rows(pool, "SELECT project_id FROM summed_calls WHERE hours = 1 ORDER BY 1")
    assert found == [(1,), (ward,)]
    assert "hours_summed" in caplog.text
    done = summariser.stretches
    assert done > 0
    await summariser.look()
    assert summariser.stretches == done


@pytest.mark.thorough
async def test_a_summariser_works_in_the_background_until_it_is_left(
    pool: Pool, writer: PostgresWriter
) -> None:
    await called(writer, Moments())

    async def is_done() -> bool:
        return await rows(pool, "SELECT FROM summed_calls") != []

    async with Summariser(pool, look_seconds=0.01):
        await until(is_done)
