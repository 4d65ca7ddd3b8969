"""Queries are read in worker threads: errors, timeouts, cancellation."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.storage.postgres.lock_waits import PLENTY_SECONDS, until_asleep
from tracer.storage.postgres import Pool, open_pool
from tracer.storage.postgres.pool import READERS

ROWS = 2_000
MUCH = "SELECT repeat('x', 1000) FROM generate_series(1, %s)"
AND_NO_END = f"{MUCH} UNION ALL SELECT pg_sleep(3600)::text"
AND_A_FAULT = f"{MUCH} UNION ALL SELECT (1 / (random() * 0)::int)::text"


async def answer(pool: Pool, query: str) -> list[tuple[object, ...]]:
    return await pool.readers.run(
        lambda connection: connection.execute(query.encode(), [ROWS]).fetchall()
    )


async def test_concurrent_large_answers_are_complete(database_url: str) -> None:
    # On a busy machine, the last of them waits long for a connection.
    async with open_pool(database_url, answer_seconds=60) as pool:
        answers = await asyncio.gather(*(answer(pool, MUCH) for _ in range(20)))
    assert [len(each) for each in answers] == [ROWS] * 20
    assert {row for each in answers for row in each} == {("x" * 1000,)}


async def test_error_during_a_large_result_is_raised(database_url: str) -> None:
    async with open_pool(database_url, answer_seconds=60) as pool:
        for _ in range(READERS + 1):  # more often than there are connections
            with pytest.raises(psycopg.errors.DivisionByZero):
                await answer(pool, AND_A_FAULT)
        assert len(await answer(pool, MUCH)) == ROWS


@pytest.mark.parametrize(
    "times", [2, *(pytest.param(times, marks=pytest.mark.thorough) for times in (1, 3))]
)
async def test_cancelled_read_ends_its_query_and_blocks_no_other(
    database_url: str, times: int
) -> None:
    async with open_pool(database_url, answer_seconds=60) as pool:
        for _ in range(READERS + 1):  # more often than there are threads
            reading = asyncio.create_task(answer(pool, AND_NO_END))
            await until_asleep(database_url)
            for _ in range(times):
                reading.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await reading
            await until_asleep(database_url, 0)
        assert len(await answer(pool, MUCH)) == ROWS


async def test_read_that_takes_too_long_ends_its_query(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pool(database_url, answer_seconds=60) as pool:
        await answer(pool, MUCH)
        monkeypatch.setattr("tracer.storage.postgres.pool.READ_SECONDS", 0.5)
        with pytest.raises(TimeoutError):
            await answer(pool, AND_NO_END)
        await until_asleep(database_url, 0)


async def test_cancelled_reads_that_wait_for_a_thread_send_no_query(
    database_url: str,
) -> None:
    async with open_pool(database_url, answer_seconds=60) as pool:
        readings = [asyncio.create_task(answer(pool, AND_NO_END)) for _ in range(20)]
        await until_asleep(database_url, READERS)
        for reading in readings:
            reading.cancel()
        async with asyncio.timeout(PLENTY_SECONDS):
            await asyncio.wait(readings)
        await until_asleep(database_url, 0)
        assert len(await answer(pool, MUCH)) == ROWS


async def test_connections_closed_by_the_server_are_replaced(database_url: str) -> None:
    async with open_pool(database_url, answer_seconds=60) as pool:
        await asyncio.gather(*(answer(pool, MUCH) for _ in range(20)))
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        answers = await asyncio.gather(*(answer(pool, MUCH) for _ in range(20)))
    assert [len(each) for each in answers] == [ROWS] * 20
