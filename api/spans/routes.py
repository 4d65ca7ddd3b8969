"""The route that lists the OpenTelemetry spans and log records of a run, as received."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.dependencies import Fresh, Reader, Reading, SpanIndexDep
from api.http.parameters import CursorText, PageSize, RootPlanId
from api.http.problems import documented
from api.span_index import SpanIndex, SpanOrder
from api.spans.schemas import LogSchema, SpanPage, SpanSchema
from tracer.errors import BadCursor
from tracer.records.spans import SPAN_ID_BYTES, LogRecord, Span

MAX_LOGS = 1000
"""The largest number of log records in one response."""

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.get("/{rootPlanId}/spans", responses=documented(HTTPStatus.NOT_FOUND))
async def list_spans(
    root_plan_id: RootPlanId,
    reader: Reader,
    caller: Reading,
    span_indexes: SpanIndexDep,
    fresh: Fresh,
    record_id: Annotated[
        UUID | None, Query(alias="recordId", description="Spans of this record only.")
    ] = None,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SpanPage:
    """List the OpenTelemetry spans of a run, sorted by start.

    An agent's own span belongs to two records: the agent's step and its plan. A run that was
    recorded as events has spans only if the servers that its tools called sent spans.

    `logs` contains the log records of the listed spans.
    """
    last = None if cursor is None else _order_of(cursor)
    span_index = await span_indexes.of_run(reader, caller.project_id, root_plan_id, fresh)
    orders = span_index.after(last, record_id)
    page = orders[:limit]
    spans = await reader.read_spans(root_plan_id, [span_id for _, span_id in page])
    logs = await reader.read_logs(root_plan_id) if span_index.has_logs else []
    is_whole_run = last is None and record_id is None
    next_cursor = _cursor(page[-1]) if len(orders) > limit else None
    return await asyncio.to_thread(_page, spans, logs, span_index, next_cursor, is_whole_run)


def _page(
    spans: list[Span],
    logs: list[LogRecord],
    span_index: SpanIndex,
    next_cursor: str | None,
    with_other_logs: bool,
) -> SpanPage:
    shown = {span.span_id for span in spans}
    of_page = [
        record
        for record in logs
        if record.span_id in shown or (with_other_logs and not span_index.has(record.span_id))
    ]
    return SpanPage(
        items=[SpanSchema.of(span, span_index.record_keys.get(span.span_id)) for span in spans],
        next_cursor=next_cursor,
        logs=[LogSchema.of(record) for record in of_page[:MAX_LOGS]],
        logs_left_out=max(0, len(of_page) - MAX_LOGS),
    )


def _cursor(last: SpanOrder) -> str:
    start, span_id = last
    return f"{start:x}-{span_id.hex()}"


def _order_of(cursor: str) -> SpanOrder:
    start, _, span_id = cursor.partition("-")
    try:
        order = int(start, 16), bytes.fromhex(span_id)
    except ValueError:
        raise BadCursor() from None
    if len(order[1]) != SPAN_ID_BYTES:
        raise BadCursor()
    return order
