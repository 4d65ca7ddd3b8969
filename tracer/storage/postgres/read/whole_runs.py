"""Read a complete run from Postgres: its records, spans and log records."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar
from uuid import UUID

from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.otel.otlp.blocks import spans_of
from tracer.otel.otlp.logs import logs_of
from tracer.records.merge import RULES
from tracer.records.record_classes import RECORDS, Record, Run
from tracer.records.spans import LogRecord, Span
from tracer.storage.postgres.connection.pool import SyncConnection
from tracer.storage.postgres.connection.row_records import columns
from tracer.storage.postgres.schema.record_tables import ALWAYS, RUN_NOT_DELETED, TABLES
from tracer.storage.postgres.spans.blocks import messages_of
from tracer.store import WholeRun

_SESSIONS = """
SELECT session_run_id FROM otel_session
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s"""

R = TypeVar("R", bound=Record)

_IN_RUN = "project_id = %(project_id)s AND root_plan_id = %(run)s"

_RUN = f"SELECT {columns(Run)} FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED}"

_SOURCE = f"SELECT source FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED}"

_RECORDS = {
    kind: f"SELECT {columns(record)} FROM {TABLES[kind]} WHERE {_IN_RUN} AND {ALWAYS}"
    f" ORDER BY {RULES[kind].id_field}"
    for kind, record in RECORDS.items()
}


def read_whole_run(connection: SyncConnection, project_id: int, root_plan_id: UUID) -> WholeRun:
    """Return all stored data of a run.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The run's project.
        root_plan_id: The run.
    """
    parameters = {"project_id": project_id, "run": root_plan_id}
    source = _source_of_run(connection, parameters)
    [run] = _records(connection, Run, _RUN, parameters)
    records = {
        kind: _records(connection, record, _RECORDS[kind], parameters)
        for kind, record in RECORDS.items()
    }
    messages = messages_of(connection, project_id, root_plan_id)
    return WholeRun(run, source, records, spans_of(messages), logs_of(messages))


def read_spans(
    connection: SyncConnection,
    project_id: int,
    root_plan_id: UUID,
    span_ids: Collection[bytes] | None,
) -> list[Span]:
    """Return the spans of a run.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The run's project.
        root_plan_id: The run.
        span_ids: Which spans; None: all.
    """
    _source_of_run(connection, {"project_id": project_id, "run": root_plan_id})
    spans = spans_of(messages_of(connection, project_id, root_plan_id))
    if span_ids is None:
        return spans
    wanted = frozenset(span_ids)
    return [span for span in spans if span.span_id in wanted]


def read_logs(connection: SyncConnection, project_id: int, root_plan_id: UUID) -> list[LogRecord]:
    """Return the log records of a run.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The run's project.
        root_plan_id: The run.
    """
    parameters = {"project_id": project_id, "run": root_plan_id}
    _source_of_run(connection, parameters)
    messages = messages_of(connection, project_id, root_plan_id)
    for (session,) in connection.execute(_SESSIONS, parameters).fetchall():
        messages += messages_of(connection, project_id, session)
    return logs_of(messages)


def _records(
    connection: SyncConnection, record: type[R], query: str, parameters: dict[str, Any]
) -> list[R]:
    rows = connection.cursor(row_factory=dict_row).execute(query, parameters).fetchall()
    return [record(**row) for row in rows]


def _source_of_run(connection: SyncConnection, parameters: dict[str, Any]) -> str:
    """Return whether a run arrived as `events` or as `spans`.

    Raises:
        RecordNotFound: The run does not exist.
    """
    row = connection.execute(_SOURCE, parameters).fetchone()
    if row is None:
        raise RecordNotFound("run", parameters["run"])
    source: str = row[0]
    return source
