"""Rows of the tables as records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from psycopg import AsyncCursor
from psycopg.rows import dict_row

from tracer.records import Record
from tracer.storage.engine import PoolConnection

R = TypeVar("R", bound=Record)
SomeRow = TypeVar("SomeRow")

AT_ONCE = 500
"""How many rows are made of an answer before others get their turn: a few milliseconds of work."""


def columns(record: type[Record]) -> str:
    """Return the columns that a record has a field for, as SQL."""
    return ", ".join(record.model_fields)


async def select(
    connection: PoolConnection, record: type[R], query: str, given: dict[str, Any]
) -> list[R]:
    """Return the records that a query finds."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(query, given)
    records: list[R] = []
    async for rows in some_at_a_time(cursor):
        records += [record(**row) for row in rows]
    return records


async def some_at_a_time(cursor: AsyncCursor[SomeRow]) -> AsyncIterator[list[SomeRow]]:
    """Yield the rows of an answer, some at a time, and give others their turn in between."""
    taken = 0
    while True:
        rows = await cursor.fetchmany(AT_ONCE)
        yield rows
        taken += len(rows)
        if taken >= cursor.rowcount:
            return
        await asyncio.sleep(0)
