"""Rows that are known to be new, by binary COPY: the cheapest way into a table.

The caller holds the lock of the rows' runs, and knows that none of the rows is there yet. Row-level
security allows no COPY, so it is the owner's, and names no project: by default a row is of the
transaction's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tracer.merge import RULES, Key
from tracer.otel.projection.rows import PROJECTED_FIELDS
from tracer.otel.span_fields import root_plan_id
from tracer.otel.spans import Span
from tracer.records import RECORDS, Kind
from tracer.storage.castable_json import FIT_COLUMNS, fits_jsonb
from tracer.storage.engine import PoolConnection
from tracer.storage.tables import TABLES
from tracer.storage.upserts import column_type
from tracer.text import escape
from tracer.versions import Fields

COPY_ROWS = 32
"""From how many rows on it pays: COPY takes round trips of its own, statements share one."""

_WIRE_TYPES = {
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "record_status": "text",
}
"""What to send as where a column's type is none that psycopg writes: the same bytes."""


class _Copy:
    """The way into one table."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        types = [column_type(table, column) for column in columns]
        self._types = [_WIRE_TYPES.get(type_, type_.lower()) for type_ in types]

    async def write(self, connection: PoolConnection, rows: Iterable[Sequence[Any]]) -> None:
        async with connection.cursor().copy(self._statement) as copy:
            copy.set_types(self._types)
            for row in rows:
                await copy.write_row(row)


_SPANS = _Copy(
    "otel_span",
    (
        *("root_plan_id", "span_id", "parent_span_id", "name"),
        *("start_time", "end_time", "body", "recorded_at"),
    ),
)

_RECORDS = {
    kind: _Copy(
        TABLES[kind],
        (
            *("root_plan_id", RULES[kind].id_field, "recorded_at", "revision"),
            *PROJECTED_FIELDS[kind],
            *(FIT_COLUMNS if kind is Kind.TOOL_CALL else ()),
        ),
    )
    for kind in RECORDS
}


async def copy_spans(connection: PoolConnection, now: datetime, spans: Sequence[Span]) -> None:
    """Add spans that are not there yet."""
    runs = {trace_id: root_plan_id(trace_id) for trace_id in {span.trace_id for span in spans}}
    rows = (
        (
            *(runs[span.trace_id], span.span_id, span.parent_span_id),
            *(escape(span.name), span.start, span.end, span.body, now),
        )
        for span in spans
    )
    await _SPANS.write(connection, rows)


async def copy_records(
    connection: PoolConnection,
    now: datetime,
    kind: Kind,
    records: Iterable[tuple[Key, int, Fields]],
) -> None:
    """Add projected records that are not there yet.

    Args:
        connection: In a transaction of their project, as the owner.
        now: When they are recorded.
        kind: What they are.
        records: The key of each, the revision of its run, and what was projected.

    Raises:
        psycopg.errors.IntegrityError: One of them is there, or is not storable.
        psycopg.errors.DataError: Postgres cannot hold one of them.
    """
    names, lists = PROJECTED_FIELDS[kind], RULES[kind].union
    texts = [*FIT_COLUMNS.values()] if kind is Kind.TOOL_CALL else []
    rows = (
        [
            *(*key, now, revision),
            *[list(get(name) or ()) if name in lists else get(name) for name in names],
            *[fits_jsonb(get(text)) for text in texts],
        ]
        for key, revision, fields in records
        for get in [fields.get]
    )
    await _RECORDS[kind].write(connection, rows)
