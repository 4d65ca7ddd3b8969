"""Reading a run whole from Postgres: its records as they are, and its spans as they came."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any
from uuid import UUID

from tracer.errors import RecordNotFound
from tracer.merge import RULES
from tracer.otel.blocks import spans_of
from tracer.otel.spans import Span
from tracer.records import RECORDS, Run
from tracer.storage.engine import PoolConnection
from tracer.storage.project_pool import ProjectPool, snapshot
from tracer.storage.row_records import columns, select
from tracer.storage.span_blocks import messages_of
from tracer.storage.tables import ALWAYS, TABLES
from tracer.store import WholeRun

_IN_RUN = "project_id = %(project_id)s AND root_plan_id = %(run)s"

_RUN = f"SELECT {columns(Run)} FROM run WHERE {_IN_RUN} AND deleted_at IS NULL"

_KIND_OF_RUN = f"SELECT source, is_agent_work FROM run WHERE {_IN_RUN} AND deleted_at IS NULL"

_RECORDS = {
    kind: f"SELECT {columns(record)} FROM {TABLES[kind]} WHERE {_IN_RUN} AND {ALWAYS}"
    f" ORDER BY {RULES[kind].id_field}"
    for kind, record in RECORDS.items()
}


async def whole_run(project: ProjectPool, root_plan_id: UUID) -> WholeRun:
    """Return everything of a run; see `TraceReader.read_whole_run`."""
    given = {"project_id": project.project_id, "run": root_plan_id}
    async with snapshot(project) as connection:
        source, is_agent_work = await _kind_of_run(connection, given)
        [run] = await select(connection, Run, _RUN, given)
        records = {
            kind: await select(connection, record, _RECORDS[kind], given)
            for kind, record in RECORDS.items()
        }
        messages = await messages_of(connection, project.project_id, root_plan_id)
    spans = await asyncio.to_thread(spans_of, messages)
    return WholeRun(run, source, is_agent_work, records, spans)


async def read_spans_of_run(
    project: ProjectPool, root_plan_id: UUID, span_ids: Collection[bytes] | None
) -> list[Span]:
    """Return spans kept under a run; see `TraceReader.read_spans`."""
    given: dict[str, Any] = {"project_id": project.project_id, "run": root_plan_id}
    async with snapshot(project) as connection:
        await _kind_of_run(connection, given)
        messages = await messages_of(connection, project.project_id, root_plan_id)
    spans = await asyncio.to_thread(spans_of, messages)
    if span_ids is None:
        return spans
    wanted = frozenset(span_ids)
    return [span for span in spans if span.span_id in wanted]


async def _kind_of_run(connection: PoolConnection, given: dict[str, Any]) -> tuple[str, bool]:
    """Return where a run's records come from, and whether it is an agent's.

    Raises:
        RecordNotFound: There is no such run.
    """
    cursor = await connection.execute(_KIND_OF_RUN, given)
    row = await cursor.fetchone()
    if row is None:
        raise RecordNotFound("run", given["run"])
    source, is_agent_work = row
    return source, is_agent_work
