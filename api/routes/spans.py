"""Original spans: what OpenTelemetry told of a run, as it came."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.parts import Reader
from api.problems import documented
from api.routes.parameters import CursorText, PageSize, RootPlanId
from api.schemas import PageSchema
from api.span_schemas import SpanSchema
from tracer.errors import BadCursor
from tracer.lineage import Payloads, TreeRows
from tracer.otel.span_places import RecordPlace, places_of
from tracer.otel.spans import SPAN_ID_BYTES, Span
from tracer.records import Kind

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.get("/{rootPlanId}/spans", responses=documented(HTTPStatus.NOT_FOUND))
async def list_spans(
    root_plan_id: RootPlanId,
    reader: Reader,
    record_id: Annotated[
        UUID | None, Query(alias="recordId", description="Spans of this record only.")
    ] = None,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> PageSchema[SpanSchema]:
    """List the OpenTelemetry spans kept under a run, by their start.

    An agent's own span counts for its step and for its plan. A run that came as events has spans
    where its tools' servers sent some.
    """
    after = None if cursor is None else _place_in_list(cursor)
    spans = await reader.read_spans(root_plan_id)
    rows = await reader.read_tree(root_plan_id, Payloads.NONE) if spans else TreeRows()
    return await asyncio.to_thread(_page, spans, rows, record_id, after, limit)


def _page(
    spans: list[Span],
    rows: TreeRows,
    record_id: UUID | None,
    after: tuple[int, bytes] | None,
    limit: int,
) -> PageSchema[SpanSchema]:
    places = places_of(spans, _known(rows))
    if record_id is not None:
        wanted = {record_id, *_steps_of(rows, record_id)}
        spans = [span for span in spans if _id_of(places.get(span.span_id)) in wanted]
    if after is not None:
        spans = [span for span in spans if span.order > after]
    shown = spans[:limit]
    return PageSchema(
        items=[SpanSchema.of(span, places.get(span.span_id)) for span in shown],
        next_cursor=_cursor(shown) if len(spans) > limit else None,
    )


def _known(rows: TreeRows) -> dict[Kind, set[UUID]]:
    return {
        Kind.PLAN: {UUID(row.plan_id) for row in rows.plans},
        Kind.STEP: {UUID(row.step_id) for row in rows.steps},
        Kind.THINK_ACT: {UUID(row.think_act_id) for row in rows.think_acts},
        Kind.TOOL_CALL: {UUID(row.tool_call_id) for row in rows.tool_calls},
    }


def _steps_of(rows: TreeRows, plan_id: UUID) -> list[UUID]:
    return [UUID(row.step_id) for row in rows.steps if row.plan_id == str(plan_id)]


def _id_of(place: RecordPlace | None) -> UUID | None:
    return None if place is None else place[1]


def _cursor(shown: Sequence[Span]) -> str:
    return f"{shown[-1].start:x}-{shown[-1].span_id.hex()}"


def _place_in_list(cursor: str) -> tuple[int, bytes]:
    start, _, span_id = cursor.partition("-")
    try:
        place = int(start, 16), bytes.fromhex(span_id)
    except ValueError:
        raise BadCursor() from None
    if len(place[1]) != SPAN_ID_BYTES:
        raise BadCursor()
    return place
