"""Storage of session states in Postgres, and the cost of a change."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from tests.contract.stores import RECORDED, clock
from tests.storage.postgres.lock_waits import until_waiting
from tracer.errors import StateConflict
from tracer.records import new_id
from tracer.records.sessions import StateChange
from tracer.redaction import Redaction, configured_patterns
from tracer.storage.postgres import Pool, ProjectPool, open_pool
from tracer.storage.postgres.project_stores import PostgresSessions
from tracer.storage.postgres.reader import PostgresReader


def visits(number: int) -> list[StateChange]:
    return [StateChange("increment", ("visits",), 1)] * number


async def test_statement_count_is_independent_of_operation_count(
    pool: Pool, asked: list[str]
) -> None:
    sessions = PostgresSessions(ProjectPool(pool))
    counts = []
    for session_id, number in (("new", 1), ("new", 1), ("new", 100), ("other", 100)):
        asked.clear()
        await sessions.change_state(session_id, {}, visits(number))
        counts.append(len(asked))
    assert counts == [2, 2, 2, 2]


async def test_session_row_has_revision_and_time_of_its_change(
    pool: Pool, database_url: str
) -> None:
    sessions = PostgresSessions(ProjectPool(pool), clock=clock())
    for _ in range(3):
        await sessions.change_state("字\0", {"greeting": "你好\0\ud800"}, visits(2))
    with suppress(StateConflict):
        await sessions.change_state("字\0", {}, [StateChange("append", ("visits",), 1)])
    query = "SELECT session_id, state::text, revision, updated_at FROM session_state"
    with psycopg.connect(database_url) as connection:
        [(session_id, state, revision, updated_at)] = connection.execute(query).fetchall()
    assert session_id == "字␛0000"
    assert state == '{"greeting":"你好\\u0000␛d800","visits":6}'
    assert revision == 3
    assert updated_at > RECORDED


async def test_redacting_a_secret_within_a_number_leaves_valid_state(pool: Pool) -> None:
    redaction = Redaction((), configured_patterns(r"\d{4}-?\d{4}"))
    sessions = PostgresSessions(ProjectPool(pool), redaction=redaction)
    change = StateChange("set", ("numbers",), [1234567890, "is 1234-5678.", 7])
    for _ in range(2):
        state = await sessions.change_state("s", {"at": -123456789.5}, [change])
    masked = "[masked: own_pattern]"
    assert state == {"at": masked, "numbers": [masked, f"is {masked}.", 7]}
    assert await sessions.read_state("s", {}) == state


async def test_cancelled_state_change_leaves_no_change_and_no_lock(
    database_url: str,
) -> None:
    async with open_pool(database_url, max_size=1) as pool:
        sessions = PostgresSessions(ProjectPool(pool))
        await sessions.change_state("s", {}, visits(1))
        for _ in range(3):
            with psycopg.connect(database_url) as holder:
                await until_waiting(database_url, 0)
                holder.execute("SELECT FROM session_state WHERE session_id = 's' FOR UPDATE")
                changing = asyncio.create_task(sessions.change_state("s", {}, visits(1)))
                await until_waiting(database_url, 1)
                changing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await changing
        assert await sessions.change_state("s", {}, visits(1)) == {"visits": 2}


async def test_joining_a_session_with_its_history_takes_two_queries(
    pool: Pool, reader: PostgresReader, asked: list[str]
) -> None:
    sessions = PostgresSessions(ProjectPool(pool))
    counts = []
    for _ in range(30):
        asked.clear()
        await reader.list_exchanges(await sessions.add_run("s", {}, new_id()))
        counts.append(len(asked))
    assert counts == [2] * 30
