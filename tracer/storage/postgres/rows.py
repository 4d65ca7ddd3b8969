"""Rows of the tables as records, and the rules of lists, searches and rejections."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg.rows import dict_row

from tracer.errors import BadRequest
from tracer.records import ABANDONED, Kind, Status
from tracer.records.record_classes import ALL_RECORDS, Record
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.run_tables import LISTS, abandoned_at
from tracer.storage.postgres.tables import TABLES
from tracer.store import MAX_RUN_BYTES, MAX_RUN_SPANS

# --- Rows of the tables as records.

R = TypeVar("R", bound=Record)


def columns(record: type[Record], runs: str = "") -> str:
    """Return the SELECT list that reads a record from its table, which must have no alias.

    Args:
        record: The class of the record.
        runs: See `abandoned_at`.
    """
    return named(expressions(_KINDS[record], runs))


def expressions(kind: Kind, runs: str = "") -> dict[str, str]:
    """Return the SQL of each field of a record. See `abandoned_at` about `runs`."""
    fields = ALL_RECORDS[kind].model_fields
    return {
        name: f"coalesce({name}, '{{}}')" if field.annotation in LISTS else name
        for name, field in fields.items()
    } | {"abandoned_at": abandoned_at(TABLES[kind], runs)}


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


# --- Rules of lists, searches and rejections that all stores share.

KIND_WORDS = {
    Kind.RUN: "run",
    Kind.PLAN: "plan",
    Kind.STEP: "step",
    Kind.THINK_ACT: "think-act",
    Kind.TOOL_CALL: "tool call",
}
"""The names of records in error messages."""

REFUSED_RUNS = {
    "run_deleted": "The run was deleted, so it accepts no more events.",
    "run_of_spans": "The run arrived as OpenTelemetry spans, so it accepts no events.",
}
"""Why a run rejects events: the code and the message."""

REFUSED_SPANS = {
    "run_deleted": "The run was deleted, so it accepts no more spans.",
    "run_too_large": f"A run receives at most {MAX_RUN_SPANS:,} spans and log records, and"
    f" {MAX_RUN_BYTES // 10**9} GB. Begin another trace for more work.",
}
"""Why a run rejects spans: the code and the message."""


def check_status(shown: str | None) -> None:
    """Check that `shown` is None or a status as the API shows it.

    Raises:
        BadRequest: `shown` is another text.
    """
    allowed = [*Status, ABANDONED]
    if shown is not None and shown not in allowed:
        raise BadRequest(f"Unknown status {shown!r}. Use one of {', '.join(allowed)}.")
