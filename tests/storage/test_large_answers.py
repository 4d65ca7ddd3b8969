"""Answers of many pieces, which a thread takes in: whole, failing, given up."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.storage.lock_waits import until_asleep
from tracer.storage.engine import Pool, borrowed, open_pool

ROWS = 2_000
MUCH = "SELECT repeat('x', 1000) FROM generate_series(1, %s)"
AND_NO_END = f"{MUCH} UNION ALL SELECT pg_sleep(3600)::text"
AND_A_FAULT = f"{MUCH} UNION ALL SELECT (1 / (random() * 0)::int)::text"


async def answer(pool: Pool, query: str) -> list[tuple[object, ...]]:
    async with borrowed(pool, seconds=None) as connection:
        return await (await connection.execute(query.encode(), [ROWS])).fetchall()


async def test_concurrent_large_answers_are_complete(database_url: str) -> None:
    # On a busy machine, the last of them waits long for a connection.
    async with open_pool(database_url, answer_seconds=60) as pool:
        answers = await asyncio.gather(*(answer(pool, MUCH) for _ in range(20)))
    assert [len(each) for each in answers] == [ROWS] * 20
    assert {row for each in answers for row in each} == {("x" * 1000,)}


async def test_a_fault_amid_a_large_answer_is_told_and_costs_no_connection(
    database_url: str,
) -> None:
    async with open_pool(database_url, max_size=1) as pool, borrowed(pool) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute(AND_A_FAULT.encode(), [ROWS])
        assert await (await connection.execute("SELECT 1")).fetchall() == [(1,)]


@pytest.mark.parametrize(
    "times", [2, *(pytest.param(times, marks=pytest.mark.thorough) for times in (1, 3))]
)
async def test_a_large_answer_that_is_given_up_leaves_the_pool_as_good_as_new(
    database_url: str, times: int
) -> None:
    async with open_pool(database_url, max_size=1) as pool:
        for _ in range(2):  # each finds the session of the one before ended
            reading = asyncio.create_task(answer(pool, AND_NO_END))
            await until_asleep(database_url)
            for _ in range(times):
                reading.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert len(await answer(pool, MUCH)) == ROWS
