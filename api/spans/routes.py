"""Spans: the OpenTelemetry data of a run, as received."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.dependencies import Fresh, Places, Reader, Reading
from api.http.parameters import CursorText, PageSize, RootPlanId
from api.http.problems import documented
from api.placed_spans import PlacedSpans, SpanOrder
from api.spans.schemas import LogSchema, SpanPage, SpanSchema
from tracer.errors import BadCursor
from tracer.otel.otlp.logs import LogRecord
from tracer.otel.otlp.spans import SPAN_ID_BYTES, Span

MAX_LOGS = 1000
"""The most log records in one response."""

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.get("/{rootPlanId}/spans", responses=documented(HTTPStatus.NOT_FOUND))
async def list_spans(
    root_plan_id: RootPlanId,
    reader: Reader,
    caller: Reading,
    places: Places,
    fresh: Fresh,
    record_id: Annotated[
        UUID | None, Query(alias="recordId", description="Spans of this record only.")
    ] = None,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SpanPage:
    """List the OpenTelemetry spans of a run, by their start.

    An agent's own span belongs to its step and to its plan. A run that arrived as events has spans
    if the servers of its tools sent some.

    `logs` has the log records of these spans.
    """
    last = None if cursor is None else _place_in_list(cursor)
    placed = await places.of_run(reader, caller.project_id, root_plan_id, fresh)
    found = placed.after(last, record_id)
    page = found[:limit]
    spans = await reader.read_spans(root_plan_id, [span_id for _, span_id in page])
    logs = await reader.read_logs(root_plan_id) if placed.has_logs else []
    is_whole = last is None and record_id is None
    next_cursor = _cursor(page[-1]) if len(found) > limit else None
    return await asyncio.to_thread(_page, spans, logs, placed, next_cursor, is_whole)


def _page(
    spans: list[Span],
    logs: list[LogRecord],
    placed: PlacedSpans,
    next_cursor: str | None,
    with_others: bool,
) -> SpanPage:
    shown = {span.span_id for span in spans}
    of_page = [
        record
        for record in logs
        if record.span_id in shown or (with_others and not placed.has(record.span_id))
    ]
    return SpanPage(
        items=[SpanSchema.of(span, placed.places.get(span.span_id)) for span in spans],
        next_cursor=next_cursor,
        logs=[LogSchema.of(record) for record in of_page[:MAX_LOGS]],
        logs_left_out=max(0, len(of_page) - MAX_LOGS),
        removed_spans=placed.removed,
    )


def _cursor(last: SpanOrder) -> str:
    start, span_id = last
    return f"{start:x}-{span_id.hex()}"


def _place_in_list(cursor: str) -> SpanOrder:
    start, _, span_id = cursor.partition("-")
    try:
        place = int(start, 16), bytes.fromhex(span_id)
    except ValueError:
        raise BadCursor() from None
    if len(place[1]) != SPAN_ID_BYTES:
        raise BadCursor()
    return place
