"""Rows of the tables as records."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg.rows import dict_row

from tracer.records import RECORDS, Kind, Record, Run
from tracer.storage.engine import PoolConnection
from tracer.storage.lease_tables import abandoned_at
from tracer.storage.tables import TABLES

R = TypeVar("R", bound=Record)


def columns(record: type[Record]) -> str:
    """Return what fills the fields of a record, as SQL, from its table under its own name."""
    return ", ".join(
        f"{abandoned_at(_TABLES[record])} AS {name}" if name == "abandoned_at" else name
        for name in record.model_fields
    )


_TABLES = {Run: TABLES[Kind.RUN]} | {record: TABLES[kind] for kind, record in RECORDS.items()}


async def select(
    connection: PoolConnection, record: type[R], query: str, given: dict[str, Any]
) -> list[R]:
    """Return the records that a query finds."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(query, given)
    return [record(**row) for row in await cursor.fetchall()]
