"""Routes that read tool calls, with their lineage, and think-acts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.conditional import NOT_MODIFIED, Conditional
from api.dependencies import ProjectedReader, Reader, naming_run
from api.problems import documented
from api.requests import CursorText, PageSize, Period, StoredText, ThinkActId, ToolCallId
from api.schemas import (
    LineageItem,
    PlanSchema,
    SearchedPageSchema,
    ShownStatus,
    ThinkActSchema,
    ToolCallInPlaceSchema,
    ToolCallPreviewSchema,
)
from tracer.records import Kind
from tracer.store import ToolCallFilter

# --- Routes that list tool calls across runs, and read one tool call with its lineage.

router = APIRouter(prefix="/api/tool-calls", tags=["tool calls"])


@router.get("")
async def list_tool_calls(
    reader: ProjectedReader,
    period: Period,
    name: Annotated[StoredText | None, Query(description="The tool's name.")] = None,
    status: Annotated[ShownStatus | None, Query(description="The status shown.")] = None,
    root_plan_id: Annotated[
        UUID | None, Query(alias="rootPlanId", description="Calls of this run only.")
    ] = None,
    provider_call_id: Annotated[
        StoredText | None,
        Query(alias="providerCallId", description="The id that the model provider assigned."),
    ] = None,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SearchedPageSchema[ToolCallPreviewSchema]:
    """List tool calls across runs, latest start first. Long strings are cut to their first 2 kB."""
    wanted = ToolCallFilter(
        name=name,
        status=status,
        root_plan_id=root_plan_id,
        provider_call_id=provider_call_id,
        since=period.since,
        until=period.until,
    )
    page = await reader.list_tool_calls(wanted, limit, cursor)
    return SearchedPageSchema[ToolCallPreviewSchema].model_validate(page)


@router.get("/{toolCallId}", responses={**NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)})
async def read_tool_call(
    tool_call_id: ToolCallId, reader: Reader, conditional: Conditional
) -> ToolCallInPlaceSchema:
    """Read one tool call with all its fields, its lineage and the sub-plans that it opened."""
    async with naming_run(reader, tool_call_id):
        conditional.check(await reader.read_revision(Kind.TOOL_CALL, tool_call_id))
        found = await reader.read_tool_call(tool_call_id)
    call = ToolCallInPlaceSchema.model_validate(found.call)
    call.lineage = [LineageItem.of(record) for record in found.lineage]
    call.sub_plans = [PlanSchema.model_validate(plan) for plan in found.sub_plans]
    return call


# --- The route that reads a think-act, also called a round.

think_act_router = APIRouter(prefix="/api/think-acts", tags=["think-acts"])


@think_act_router.get(
    "/{thinkActId}", responses={**NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)}
)
async def read_think_act(
    think_act_id: ThinkActId, reader: Reader, conditional: Conditional
) -> ThinkActSchema:
    """Read one round (a think-act) with all its fields, including the model's messages."""
    async with naming_run(reader, think_act_id):
        conditional.check(await reader.read_revision(Kind.THINK_ACT, think_act_id))
        return ThinkActSchema.model_validate(await reader.read_think_act(think_act_id))
