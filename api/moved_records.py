"""Redirect from ids of records that do not exist any more.

A run's records are computed again when new spans arrive or on request, and may then change.
A record that is made from a span gets an id that depends on the kind of the record. A later update
of the span, or a newer version of Tracer, may turn the same span into another kind of record with
another id. The old id then redirects to the record that the span belongs to now. If the run does
not have the span any more, the old id redirects to the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Depends

from api.dependencies import Fresh, Reader, Reading, SpanIndexDep
from api.span_index import SpanIndex
from tracer.errors import RecordMoved, RecordNotFound
from tracer.otel.projection.project import record_ids
from tracer.records.record_classes import Kind

_PATHS = {
    Kind.RUN: "/api/runs/{}",
    Kind.PLAN: "/api/plans/{}",
    Kind.THINK_ACT: "/api/think-acts/{}",
    Kind.TOOL_CALL: "/api/tool-calls/{}",
}

MADE_FROM_SPAN = 8
"""The UUID version (RFC 9562) of the ids of records that are made from spans."""

Redirect = Callable[[Kind, UUID], AbstractAsyncContextManager[None]]


def _successor(
    span_index: SpanIndex, run_id: UUID, kind: Kind, record_id: UUID
) -> tuple[Kind, UUID] | None:
    """Find the span that `record_id` was made from, and return the record that it belongs to now.

    Return None if the run does not have this span. The function hashes the ids of all spans, which
    takes 0.1 s for 50,000 spans, so call it in a thread.
    """
    id_of = record_ids(run_id.bytes, kind)
    for span_id, key in span_index.record_keys.items():
        if id_of(span_id) == record_id.bytes:
            # A step has no page of its own.
            return (Kind.PLAN, span_index.plans[key[1]]) if key[0] is Kind.STEP else key
    return None


async def _redirect(
    reader: Reader, caller: Reading, span_indexes: SpanIndexDep, fresh: Fresh
) -> Redirect:
    async def find_successor(kind: Kind, record_id: UUID) -> tuple[Kind, UUID] | None:
        if record_id.version != MADE_FROM_SPAN:
            return None
        run_ids = await reader.find_runs_like(record_id)
        for run_id in run_ids:
            span_index = await span_indexes.of_run(reader, caller.project_id, run_id, fresh)
            successor = await asyncio.to_thread(_successor, span_index, run_id, kind, record_id)
            if successor is not None:
                return successor
        return (Kind.RUN, run_ids[0]) if len(run_ids) == 1 else None

    @asynccontextmanager
    async def redirect(kind: Kind, record_id: UUID) -> AsyncIterator[None]:
        try:
            yield
        except RecordNotFound:
            successor = await find_successor(kind, record_id)
            if successor is None:
                raise
            raise RecordMoved(_PATHS[successor[0]].format(successor[1])) from None

    return redirect


NOT_THERE = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.NOT_FOUND)
"""The statuses of a response for an id without a record."""

RedirectIfMoved = Annotated[Redirect, Depends(_redirect)]
"""Raises `RecordMoved` in place of `RecordNotFound` if the record has a successor:
`async with redirect(kind, record_id): ...`."""
