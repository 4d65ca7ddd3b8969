"""Waiting until a projector has projected the pending spans of a run, before the run is read.

docs/explanation/projection.md describes the projection itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tracer.otel.otlp.span_fields import run_ids_like
from tracer.records.merge import RULES
from tracer.records.record_classes import Kind
from tracer.storage.postgres.connection.notifications import WAKE_PROJECTORS
from tracer.storage.postgres.connection.pool import pooled_connection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, executed, fetched
from tracer.storage.postgres.schema.record_tables import TABLES
from tracer.store import Behind

FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH = 0.02, 0.1, 1.2
"""The pauses in seconds between two checks of a run that a projector projects: the first one, the
longest one, and the factor by which they grow."""

CANDIDATES = 10
"""The most pending runs that are projected before one record is read. These are the runs whose ids
begin with the same bytes as the record's id."""


@dataclass(frozen=True)
class _PendingRun:
    root_plan_id: UUID
    arrived: int
    spans: int
    since: datetime
    projected: int
    error: str | None


class PostgresProjection:
    """`tracer.store.SpanProjection` over a project's connections."""

    def __init__(self, project: ProjectPool) -> None:
        """Set the project, with its connections."""
        self._project = project

    async def catch_up(self, kind: Kind, record_id: UUID, *, seconds: float = 2.0) -> Behind | None:
        """Wait until the pending spans of a record's run are projected."""
        time = asyncio.get_running_loop().time
        end, pause = time() + seconds, FIRST_PAUSE
        pending = await self._find(kind, record_id)
        goals = {run.root_plan_id: run.arrived for run in pending}
        if goals:
            await self._wake_projectors(list(goals))
        while pending:
            if time() >= end or all(run.error is not None for run in pending):
                errors = [run.error for run in pending if run.error is not None]
                return Behind(
                    sum(run.spans for run in pending),
                    min(run.since for run in pending),
                    errors[0] if errors else None,
                )
            await asyncio.sleep(min(pause, max(0.0, end - time())))
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
            still = await self._fetch(_OF_RUNS, {"runs": list(goals)})
            pending = [run for run in still if run.projected < goals[run.root_plan_id]]
        return None

    async def _find(self, kind: Kind, record_id: UUID) -> list[_PendingRun]:
        """Return the pending runs that a record may belong to. Usually there are none."""
        first = last = record_id
        if kind is not Kind.RUN:
            # Another id may begin like a trace id by chance: then that run is projected a little
            # earlier. Records that spans carry keep their own ids, so they are looked up.
            first, last = run_ids_like(record_id)
        parameters = {"id": record_id, "first": first, "last": last}
        runs = await self._fetch(_FIND[kind], parameters)
        # The id of a root plan is that of its run.
        return runs[:1] if runs and runs[0].root_plan_id == record_id else runs

    async def _fetch(self, query: str, parameters: Mapping[str, Any]) -> list[_PendingRun]:
        given = {"project_id": self._project.project_id, **parameters}
        return [_PendingRun(*row) for row in await fetched(self._project, query, given)]

    async def _wake_projectors(self, runs: list[UUID]) -> None:
        """Put runs at the front of the queue, and notify the projectors.

        If a run has failed attempts or is being projected, its due time does not change.
        """
        with store_errors():
            await executed(self._project, [(_MAKE_DUE, [self._project.project_id, runs])])
            async with pooled_connection(self._project.pool) as connection:
                await connection.execute(WAKE_PROJECTORS)


_PENDING = """
SELECT pending.root_plan_id, pending.arrived, pending.spans, pending.since, run.projected,
    run.projection_error
FROM pending_run AS pending
JOIN run ON run.project_id = pending.project_id AND run.root_plan_id = pending.root_plan_id
WHERE pending.project_id = %(project_id)s AND run.deleted_at IS NULL"""

_OF_RUNS = f"{_PENDING} AND pending.root_plan_id = ANY(%(runs)s)"


def _finding(kind: Kind) -> str:
    """Return the query for the pending runs that a record may belong to.

    The query compares only primary keys, so it is fast.
    """
    may_be_its_run = "pending.root_plan_id >= %(first)s AND pending.root_plan_id <= %(last)s"
    if kind is not Kind.RUN:
        may_be_its_run += f""" OR pending.root_plan_id = ANY (ARRAY(
            SELECT root_plan_id FROM {TABLES[kind]}
            WHERE {RULES[kind].id_field} = %(id)s AND project_id = %(project_id)s))"""
    return f"""{_PENDING} AND ({may_be_its_run})
ORDER BY pending.root_plan_id <> %(id)s, pending.root_plan_id LIMIT {CANDIDATES}"""


_FIND = {kind: _finding(kind) for kind in TABLES}

# Any time in the past: runs that nobody waits for are due later.
_MAKE_DUE = """
UPDATE pending_run SET due_at = to_timestamp(0)
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND attempts = 0
    AND due_at > to_timestamp(0) AND due_at < 'infinity'"""
