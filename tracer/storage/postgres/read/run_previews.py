"""Read the previews of the run list: at most four queries for a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tracer.records.record_classes import Kind, Run
from tracer.records.run_previews import (
    PREVIEW_CHARACTERS,
    NotableRecord,
    RunPreview,
    RunTexts,
)
from tracer.storage.postgres.connection.pool import SyncConnection
from tracer.storage.postgres.schema.record_tables import ALWAYS, IS_FAILED, TABLES
from tracer.storage.run_previews import run_previews

_READ = PREVIEW_CHARACTERS + 1
"""How many characters of a text are read: one more than is shown, to detect a longer text."""


def read_run_previews(
    connection: SyncConnection, project_id: int, runs: Sequence[Run]
) -> list[RunPreview]:
    """Return the previews of `runs` that the run list shows.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The project of the runs.
        runs: The runs.
    """
    if not runs:
        return []
    parameters: dict[str, Any] = {
        "project_id": project_id,
        "runs": [run.root_plan_id for run in runs],
        "open": [run.root_plan_id for run in runs if not run.status.is_ending],
    }
    plans = connection.execute(_PLANS, parameters)
    notable = [connection.execute(_FAILED, parameters)]
    leases = None
    if parameters["open"]:
        notable.append(connection.execute(_RUNNING, parameters))
        leases = connection.execute(_SEEN, parameters)
    texts = {run_id: RunTexts(*row) for run_id, *row in plans.fetchall()}
    records = [_notable(row) for cursor in notable for row in cursor.fetchall()]
    seen: dict[UUID, datetime] = {} if leases is None else dict(leases.fetchall())
    return run_previews(runs, texts, records, seen)


def _notable(row: Sequence[Any]) -> NotableRecord:
    run_id, kind, *rest = row
    return NotableRecord(run_id, Kind(kind), *rest)


_OF_ROOT = "FILTER (WHERE plan_id = root_plan_id)"

_PLANS = f"""
SELECT root_plan_id, max(left(user_request, {_READ})) {_OF_ROOT},
    max(left(summary, {_READ})) {_OF_ROOT},
    count(*) FILTER (WHERE plan_id <> root_plan_id)
FROM plan_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)
GROUP BY root_plan_id"""

_SEEN = """
SELECT recorder.root_plan_id, max(lease.seen_at)
FROM recorder_run AS recorder JOIN recorder_lease AS lease
    ON lease.project_id = recorder.project_id AND lease.recorder_id = recorder.recorder_id
WHERE recorder.project_id = %(project_id)s AND recorder.root_plan_id = ANY(%(open)s)
GROUP BY recorder.root_plan_id"""


_NOTHING, _NO_ID = "NULL::text", "NULL::uuid"

_COLUMNS = {
    Kind.PLAN: (
        *("plan_id", "agent_name", _NOTHING),
        *("tool_call_id", _NO_ID, "opened_by_step_id", "parent_plan_id"),
    ),
    Kind.STEP: (
        *("step_id", "agent_name", _NOTHING),
        *(_NO_ID, _NO_ID, _NO_ID, "plan_id"),
    ),
    Kind.THINK_ACT: (
        *("think_act_id", "coalesce(model, requested_model)", _NOTHING),
        *(_NO_ID, _NO_ID, "step_id", _NO_ID),
    ),
    Kind.TOOL_CALL: (
        *("tool_call_id", "name", f"left(arguments, {_READ})"),
        *("parent_tool_call_id", "think_act_id", "step_id", _NO_ID),
    ),
}
"""The columns of the id, the name, the arguments and the parents of each kind of record."""


def _notable_records(condition: str) -> str:
    """Return the query for some records of all kinds, with the fields of `NotableRecord`."""
    return " UNION ALL ".join(
        f"""
SELECT root_plan_id, '{kind}', {id_field}, status = 'failed', {name}, started_at, finished_at,
    reason, error_type, left(error_message, {_READ}), {arguments}, {", ".join(above)}
FROM {TABLES[kind]}
WHERE project_id = %(project_id)s AND {condition}"""
        for kind, (id_field, name, arguments, *above) in _COLUMNS.items()
    )


_FAILED = _notable_records(f"root_plan_id = ANY(%(runs)s) AND {IS_FAILED}")
_RUNNING = _notable_records(f"root_plan_id = ANY(%(open)s) AND {ALWAYS} AND status = 'running'")
