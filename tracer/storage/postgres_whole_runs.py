"""Reading a run whole from Postgres: its records as they are, and its spans as they came."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any
from uuid import UUID

from tracer.errors import RecordNotFound
from tracer.merge import RULES
from tracer.otel.decode import decode_protobuf
from tracer.otel.spans import Span
from tracer.otel.wire import bytes_field
from tracer.records import RECORDS, Run
from tracer.storage.engine import PoolConnection
from tracer.storage.project_pool import ProjectPool, snapshot
from tracer.storage.row_records import columns, select
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

_SPANS = f"SELECT body FROM otel_span WHERE {_IN_RUN} ORDER BY start_time, span_id"

_SOME_SPANS = f"""
SELECT body FROM otel_span WHERE {_IN_RUN} AND span_id = ANY(%(span_ids)s)
ORDER BY start_time, span_id"""

_AT_ONCE = 500
"""How many spans are decoded in one call, which holds the interpreter."""


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
        bodies = await _bodies(connection, _SPANS, given)
    spans = await asyncio.to_thread(_decoded, bodies)
    return WholeRun(run, source, is_agent_work, records, spans)


async def read_spans_of_run(
    project: ProjectPool, root_plan_id: UUID, span_ids: Collection[bytes] | None
) -> list[Span]:
    """Return spans kept under a run; see `TraceReader.read_spans`."""
    given: dict[str, Any] = {"project_id": project.project_id, "run": root_plan_id}
    asked = _SPANS
    if span_ids is not None:
        given["span_ids"] = list(span_ids)
        asked = _SOME_SPANS
    async with snapshot(project) as connection:
        await _kind_of_run(connection, given)
        bodies = await _bodies(connection, asked, given)
    return await asyncio.to_thread(_decoded, bodies)


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


async def _bodies(connection: PoolConnection, asked: str, given: dict[str, Any]) -> list[bytes]:
    cursor = await connection.execute(asked, given, binary=True)
    return [body for (body,) in await cursor.fetchall()]


def _decoded(bodies: list[bytes]) -> list[Span]:
    """Return spans by their bodies; takes a while, and belongs into a thread."""
    spans: list[Span] = []
    for begin in range(0, len(bodies), _AT_ONCE):
        some = bodies[begin : begin + _AT_ONCE]
        spans += decode_protobuf(b"".join(bytes_field(1, body) for body in some)).spans
    return spans
