"""Rows of the tables as records."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg.rows import dict_row

from tracer.records import Record
from tracer.storage.engine import PoolConnection

R = TypeVar("R", bound=Record)


def columns(record: type[Record]) -> str:
    """Return the columns that a record has a field for, as SQL."""
    return ", ".join(record.model_fields)


async def select(
    connection: PoolConnection, record: type[R], query: str, given: dict[str, Any]
) -> list[R]:
    """Return the records that a query finds."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(query, given)
    return [record(**row) for row in await cursor.fetchall()]
