"""Rows of the tables as records."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg.rows import dict_row

from tracer.records.merge import RULES
from tracer.records.record_classes import ALL_RECORDS, Kind, Record
from tracer.storage.postgres.connection.pool import SyncConnection
from tracer.storage.postgres.schema.lease_tables import abandoned_at
from tracer.storage.postgres.schema.record_tables import TABLES

R = TypeVar("R", bound=Record)


def columns(record: type[Record]) -> str:
    """Return the SELECT list that reads a record from its table, which must have no alias."""
    return named(expressions(_KINDS[record]))


def expressions(kind: Kind) -> dict[str, str]:
    """Return the SQL of each field of a record."""
    return (
        {name: name for name in ALL_RECORDS[kind].model_fields}
        | {"abandoned_at": abandoned_at(TABLES[kind])}
        | {name: f"coalesce({name}, '{{}}')" for name in RULES[kind].union}
    )


def named(columns: dict[str, str]) -> str:
    """Return a SELECT list: each expression with its column name."""
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items())


_KINDS = {record: kind for kind, record in ALL_RECORDS.items()}


def select(
    connection: SyncConnection, record: type[R], query: str, parameters: dict[str, Any]
) -> list[R]:
    """Return the records that a query finds."""
    cursor = connection.cursor(row_factory=dict_row)
    cursor.execute(query, parameters)
    return [record(**row) for row in cursor.fetchall()]
