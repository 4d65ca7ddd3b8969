"""Reading a run whole from Postgres: its records as they are, and its spans as they came."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from psycopg import Cursor
from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.merge import RULES
from tracer.otel.blocks import spans_of
from tracer.otel.spans import Span
from tracer.records import RECORDS, Run
from tracer.storage.engine import SyncConnection
from tracer.storage.row_records import columns
from tracer.storage.span_blocks import messages_of
from tracer.storage.tables import ALWAYS, RUN_NOT_DELETED, TABLES
from tracer.store import WholeRun

_IN_RUN = "project_id = %(project_id)s AND root_plan_id = %(run)s"

_RUN = f"SELECT {columns(Run)} FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED}"

_KIND_OF_RUN = f"SELECT source, is_agent_work FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED}"

_RECORDS = {
    kind: f"SELECT {columns(record)} FROM {TABLES[kind]} WHERE {_IN_RUN} AND {ALWAYS}"
    f" ORDER BY {RULES[kind].id_field}"
    for kind, record in RECORDS.items()
}


def read_whole_run(
    connection: SyncConnection, project_id: int, root_plan_id: UUID
) -> Callable[[], WholeRun]:
    """Send the queries for everything of a run; see `TraceReader.read_whole_run`.

    Args:
        connection: In a transaction in which every query sees the same state, and in a pipeline.
        project_id: The run's project.
        root_plan_id: The run.

    Returns:
        A function that returns the run. Call it after the end of the transaction. It raises
        `RecordNotFound` if the run does not exist.
    """
    given = {"project_id": project_id, "run": root_plan_id}
    kind_of_run = connection.execute(_KIND_OF_RUN, given)
    runs = _sent(connection, _RUN, given)
    rows = {kind: _sent(connection, _RECORDS[kind], given) for kind in RECORDS}
    messages = messages_of(connection, project_id, root_plan_id)

    def run() -> WholeRun:
        source, is_agent_work = _found(kind_of_run, root_plan_id)
        records = {kind: [RECORDS[kind](**row) for row in rows[kind].fetchall()] for kind in rows}
        [run] = runs.fetchall()
        return WholeRun(Run(**run), source, is_agent_work, records, spans_of(messages()))

    return run


def read_spans(
    connection: SyncConnection,
    project_id: int,
    root_plan_id: UUID,
    span_ids: Collection[bytes] | None,
) -> Callable[[], list[Span]]:
    """Send the queries for the spans of a run; see `TraceReader.read_spans`.

    Arguments and result are like those of `read_whole_run`.
    """
    given = {"project_id": project_id, "run": root_plan_id}
    kind_of_run = connection.execute(_KIND_OF_RUN, given)
    messages = messages_of(connection, project_id, root_plan_id)

    def spans() -> list[Span]:
        _found(kind_of_run, root_plan_id)
        spans = spans_of(messages())
        if span_ids is None:
            return spans
        wanted = frozenset(span_ids)
        return [span for span in spans if span.span_id in wanted]

    return spans


def _sent(connection: SyncConnection, query: str, given: dict[str, Any]) -> Cursor[dict[str, Any]]:
    return connection.cursor(row_factory=dict_row).execute(query, given)


def _found(cursor: Cursor[tuple[Any, ...]], root_plan_id: UUID) -> tuple[Any, ...]:
    """Return the first row of an answer.

    Raises:
        RecordNotFound: It has no row: the run does not exist.
    """
    row = cursor.fetchone()
    if row is None:
        raise RecordNotFound("run", root_plan_id)
    return row
