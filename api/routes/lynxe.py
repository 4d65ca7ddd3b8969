"""Runs in the shape in which Lynxe serves them, for front ends that were written for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Response

from api.large_answers import JsonInParts
from api.lynxe_schemas import (
    AGENT_EXAMPLE,
    PLAN_EXAMPLE,
    LynxeAgentExecutionRecord,
    LynxePlanExecutionRecord,
)
from api.lynxe_shapes import CHILDREN, agent_record, plan_record
from api.parts import Reader
from api.problems import documented
from api.tree_json import tree_parts
from tracer.errors import RecordNotFound
from tracer.lineage import Payloads, TreeRows, build_tree
from tracer.nodes import Node, StepNode

router = APIRouter(prefix="/api/executor", tags=["for front ends of Lynxe"])

AnyPlanId = Annotated[str, Path(alias="planId", description="The id of any plan.")]
AnyStepId = Annotated[str, Path(alias="stepId")]


def _answer(model: type[Any], example: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    return {
        200: {"model": model, "content": {"application/json": {"example": example}}},
        **documented(HTTPStatus.NOT_FOUND),
    }


@router.get(
    "/details/{planId}",
    response_model=None,
    responses=_answer(LynxePlanExecutionRecord, PLAN_EXAMPLE),
)
async def read_lynxe_plan(plan_id: AnyPlanId, reader: Reader) -> Response:
    """Read a plan and everything below it as Lynxe's `PlanExecutionRecord`."""
    wanted = _known_as("plan", plan_id)
    rows = await reader.read_tree(wanted, Payloads.FULL)
    messages = await reader.read_messages(rows.revision.root_plan_id)
    record = await asyncio.to_thread(_plan_of, rows, str(wanted), messages)
    return JsonInParts(tree_parts(record, CHILDREN))


def _plan_of(rows: TreeRows, plan_id: str, messages: Mapping[UUID, str]) -> dict[str, Any]:
    calls = {call.tool_call_id: call for call in rows.tool_calls}
    top = build_tree(rows, plan_id)
    return plan_record(top, rows.opener or calls.get(top.tool_call_id or ""), messages)


@router.get(
    "/agent-execution/{stepId}",
    response_model=None,
    responses=_answer(LynxeAgentExecutionRecord, AGENT_EXAMPLE),
)
async def read_lynxe_agent(step_id: AnyStepId, reader: Reader) -> Response:
    """Read a step and everything below it as Lynxe's `AgentExecutionRecord`."""
    step = await reader.read_step(_known_as("step", step_id))
    plan_id = step.plan_id or step.root_plan_id
    rows = await reader.read_tree(plan_id, Payloads.FULL)
    messages = await reader.read_messages(step.root_plan_id)
    record = await asyncio.to_thread(_step_of, rows, str(plan_id), str(step.step_id), messages)
    if record is None:
        raise RecordNotFound("step", step_id)
    return JsonInParts(tree_parts(record, CHILDREN))


def _step_of(
    rows: TreeRows, plan_id: str, step_id: str, messages: Mapping[UUID, str]
) -> dict[str, Any] | None:
    tree = build_tree(rows, plan_id)
    node = _step_with_id((*tree.agent_executions, *(tree.unplaced or ())), step_id)
    return None if node is None else agent_record(node, messages)


def _known_as(kind: str, text: str) -> UUID:
    """Return an id; of one that is none, no record is known: Lynxe's own ids look otherwise."""
    try:
        return UUID(text)
    except ValueError:
        raise RecordNotFound(kind, text) from None


def _step_with_id(nodes: Iterable[Node], step_id: str) -> StepNode | None:
    steps = (node for node in nodes if isinstance(node, StepNode))
    return next((step for step in steps if step.step_id == step_id), None)
