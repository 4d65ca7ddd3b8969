"""Reads the changes and the revisions of runs from Postgres, for watchers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tracer.errors import RecordNotFound
from tracer.lineage.nodes import ROWS
from tracer.lineage.tree import Payloads, Revision
from tracer.records.merge import RULES
from tracer.records.record_classes import RECORDS, Kind
from tracer.storage.postgres.connection.pool import SyncConnection
from tracer.storage.postgres.read.tree import read_rows, rows_query
from tracer.storage.postgres.schema.record_tables import RUN_NOT_DELETED, TABLES
from tracer.storage.run_changes import changes_between
from tracer.storage.store_rules import KIND_WORDS
from tracer.store import RunChanges


def read_run_changes(
    connection: SyncConnection, project_id: int, root_plan_id: UUID, after: int, limit: int
) -> RunChanges:
    """Return what changed in a run after a revision.

    Args:
        connection: In a transaction with one snapshot, and in a pipeline.
        project_id: The run's project.
        root_plan_id: The run.
        after: The revision.
        limit: The largest number of changes.
    """
    parameters = {"project_id": project_id, "run": root_plan_id, "after": after, "most": limit + 1}
    # All queries are sent before the first result is read, in one round trip.
    cursor = connection.execute(_REVISION, parameters)
    removed = connection.execute(_REMOVED, parameters)
    rows = read_rows(connection, ROWS, _CHANGED, parameters, Payloads.PREVIEW)
    row = cursor.fetchone()
    if row is None:
        raise RecordNotFound(KIND_WORDS[Kind.RUN], root_plan_id)
    changed = [row for kind in RECORDS for row in rows[kind]]
    gone = [(Kind(kind), record_id) for kind, record_id in removed.fetchall()]
    return changes_between(after, row[0], changed, gone, limit)


def read_run_revision(
    connection: SyncConnection, project_id: int, kind: Kind, record_id: UUID
) -> Revision:
    """Return the revision of the run that contains a record."""
    cursor = connection.execute(
        _RUN_OF[kind], {"project_id": project_id, "id": record_id}, prepare=True
    )
    row = cursor.fetchone()
    if row is None:
        raise RecordNotFound(KIND_WORDS[kind], record_id)
    return Revision(*row)


def read_run_revisions(
    connection: SyncConnection, project_id: int, root_plan_ids: list[UUID]
) -> dict[UUID, int]:
    """Return the revisions of runs."""
    parameters: dict[str, Any] = {"project_id": project_id, "runs": root_plan_ids}
    cursor = connection.execute(_REVISIONS, parameters)
    return dict(cursor.fetchall())


_RUN = f"run.project_id = %(project_id)s AND run.{RUN_NOT_DELETED}"

_REVISION = f"SELECT revision FROM run WHERE {_RUN} AND root_plan_id = %(run)s"

_REVISIONS = f"SELECT root_plan_id, revision FROM run WHERE {_RUN} AND root_plan_id = ANY(%(runs)s)"

_STATE = "run.root_plan_id, run.revision, run.recorded_at, run.span_bytes"

_RUN_OF = {Kind.RUN: f"SELECT {_STATE} FROM run WHERE {_RUN}"} | {
    kind: f"""
    SELECT {_STATE}
    FROM {TABLES[kind]} AS part
    JOIN run ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
    WHERE part.{RULES[kind].id_field} = %(id)s AND part.project_id = %(project_id)s
        AND run.{RUN_NOT_DELETED}
    ORDER BY part.status = 'unknown', part.root_plan_id LIMIT 1"""
    for kind in RECORDS
}
_RUN_OF[Kind.RUN] += " AND root_plan_id = %(id)s"

_CHANGED = {
    kind: rows_query(kind, Payloads.PREVIEW, "revision > %(after)s") + " LIMIT %(most)s"
    for kind in RECORDS
}

_REMOVED = """
SELECT kind, record_id FROM removed_record
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND revision > %(after)s
ORDER BY record_id LIMIT %(most)s"""
