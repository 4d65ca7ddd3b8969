"""The nodes of the tree, for the OpenAPI document.

The tree itself is written from the nodes of `tracer.lineage` without passing through these
classes; a test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel

from api.schemas import (
    PLAN_ID,
    STEP_ID,
    SUB_PLAN_ID,
    THINK_ACT_ID,
    TOOL_CALL_ID,
    BehindSchema,
    ErrorSchema,
    ParentActToolCall,
    ShownStatus,
    read_config,
)
from tracer.status import Status

NodeKind = Literal["plan", "step", "thinkAct", "toolCall"]
"""The kinds of record below a run."""


class NodeTotals(BaseModel):
    """Sums over a part of the tree."""

    model_config = read_config(
        inputTokens=1200, outputTokens=80, costUsd=0.004, toolCalls=2, failures=0
    )

    input_tokens: int
    output_tokens: int
    cost_usd: float
    """US dollars."""
    tool_calls: int
    failures: int
    """Think-acts and tool calls that ended `failed`."""


_NODE_CONFIG = read_config()
# What has a default is left out where it does not apply.
_NODE_CONFIG["json_schema_serialization_defaults_required"] = False


class _Fields(BaseModel):
    model_config = _NODE_CONFIG

    status: ShownStatus
    reason: str | None
    """Which kind of ending it was."""
    started_at: datetime | None
    finished_at: datetime | None
    abandoned_at: datetime | None
    duration_ms: float | None
    """Milliseconds; null while it is open."""
    position: int | None
    """The place among its siblings, from 0."""
    masked: list[str] | None
    """Where secrets were masked, or payloads not kept; null where nowhere."""
    error: ErrorSchema | None


class _Totals(BaseModel):
    model_config = _NODE_CONFIG

    own: NodeTotals
    """The node itself and what is below it outside sub-plans."""
    cumulative: NodeTotals
    """Sub-plans included, whatever `depth` shows."""


class ToolCallFields(_Fields):
    """A tool call by itself, long strings as previews."""

    kind: Literal["toolCall"]
    tool_call_id: UUID
    step_id: UUID | None
    think_act_id: UUID | None
    parent_tool_call_id: UUID | None
    provider_call_id: str | None
    """The id that the model's provider gave; repeats, may be empty."""
    name: str | None
    tool_type: str | None
    attempt: int | None
    forged_arguments: list[str]
    """The hidden parameters that somebody but the runtime tried to give: their names, sorted."""
    short_circuited_by: str | None
    """The hook that answered in the tool's place."""
    still_running: bool | None
    """True where it was given up on and its tool went on regardless; else null."""
    late_finished_at: datetime | None
    late_status: Status | None
    inferred: bool
    """Whether its round was reconstructed rather than recorded."""
    inferred_from: str | None
    """The evidence for that."""
    arguments: str | None
    arguments_bytes: int | None
    arguments_truncated: bool
    effective_arguments: str | None
    """What the latest attempt was called with, where hooks changed the arguments."""
    effective_arguments_bytes: int | None
    effective_arguments_truncated: bool
    result: str | None
    result_bytes: int | None
    result_truncated: bool
    state_changes: str | None
    """What it changed in the session's state, as the text of a JSON array."""
    state_changes_bytes: int | None
    state_changes_truncated: bool
    late_result: str | None
    late_result_bytes: int | None
    late_result_truncated: bool


class ToolCallNode(ToolCallFields, _Totals):
    """A tool call, with the items of its batch and the sub-plans that it opened."""

    sub_plan_count: int
    """How many sub-plans it opened, shown or not."""
    sub_plans: list[PlanNode]
    tool_calls: list[ToolCallNode]
    """The items of a batch."""


class ThinkActFields(_Fields):
    """One round by itself, long strings as previews."""

    kind: Literal["thinkAct"]
    think_act_id: UUID
    step_id: UUID | None
    requested_model: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    thought: str | None
    thought_bytes: int | None
    thought_truncated: bool


class ThinkActNode(ThinkActFields, _Totals):
    """One round, with the tool calls that its model chose."""

    tool_calls: list[ToolCallNode]


class StepFields(_Fields):
    """A step by itself, long strings as previews."""

    kind: Literal["step"]
    step_id: UUID
    plan_id: UUID | None
    agent_name: str | None
    request: str | None
    request_bytes: int | None
    request_truncated: bool
    result: str | None
    result_bytes: int | None
    result_truncated: bool


class StepNode(StepFields, _Totals):
    """A step, with its rounds."""

    think_acts: list[ThinkActNode]
    tool_calls: list[ToolCallNode]
    """The calls made outside any round."""
    sub_plan_count: int
    """How many sub-plans it handed off to, shown or not."""
    sub_plans: list[PlanNode]
    """Hand-offs: opened by the agent, not by a tool call."""


class PlanFields(_Fields):
    """A plan by itself, long strings as previews."""

    kind: Literal["plan"]
    plan_id: UUID
    root_plan_id: UUID
    parent_plan_id: UUID | None
    tool_call_id: UUID | None
    """The tool call that opened it."""
    opened_by_step_id: UUID | None
    title: str | None
    agent_name: str | None
    template: str | None
    template_version: str | None
    inferred: bool
    """Whether what opened it was reconstructed rather than recorded."""
    inferred_from: str | None
    """The evidence for that."""
    depth: int | None
    user_request: str | None
    user_request_bytes: int | None
    user_request_truncated: bool
    summary: str | None
    summary_bytes: int | None
    summary_truncated: bool


class PlanNode(PlanFields, _Totals):
    """A plan, with its steps."""

    parent_act_tool_call: ParentActToolCall | None
    """The tool call that opened it, in short."""
    agent_executions: list[StepNode]
    sub_plan_count: int
    """How many sub-plans its steps opened, shown or not."""
    unplaced: list[PlanNode | StepNode | ThinkActNode | ToolCallNode] = []
    """At a root plan only: nodes whose parent is not known yet."""
    revision: int = 0
    """At the top of the tree only: the run's revision that was read, to watch the run from."""
    behind: BehindSchema | None = None
    """At the top of the tree only: the spans that it does not include yet; null if it has all."""


def _example() -> dict[str, object]:
    totals = {
        "inputTokens": 120,
        "outputTokens": 40,
        "costUsd": 0.0004,
        "toolCalls": 1,
        "failures": 0,
    }
    alike: dict[str, object] = {
        "status": "succeeded",
        "reason": None,
        "startedAt": "2026-11-21T22:21:52.462812Z",
        "finishedAt": "2026-11-21T22:21:53.462812Z",
        "abandonedAt": None,
        "durationMs": 1000.0,
        "position": 0,
        "masked": None,
        "error": None,
        "own": totals,
        "cumulative": totals,
    }

    def text(name: str, value: str | None) -> dict[str, object]:
        size = None if value is None else len(value)
        return {name: value, f"{name}Bytes": size, f"{name}Truncated": False}

    def plan(plan_id: str, **fields: object) -> dict[str, object]:
        return {
            "kind": "plan",
            "planId": plan_id,
            "rootPlanId": PLAN_ID,
            "parentPlanId": None,
            "toolCallId": None,
            "openedByStepId": None,
            "parentActToolCall": None,
            "agentName": "planner",
            "template": None,
            "templateVersion": None,
            "inferred": False,
            "inferredFrom": None,
            "depth": 0,
            "subPlanCount": 0,
            "agentExecutions": [],
            **text("summary", None),
            **alike,
            **fields,
        }

    arguments = '{"patient": "p-1"}'
    call: dict[str, object] = {
        "kind": "toolCall",
        "toolCallId": TOOL_CALL_ID,
        "stepId": STEP_ID,
        "thinkActId": THINK_ACT_ID,
        "parentToolCallId": None,
        "providerCallId": "call_0",
        "name": "medication_check",
        "toolType": "SUBPLAN",
        "attempt": 1,
        "forgedArguments": [],
        "shortCircuitedBy": None,
        "stillRunning": None,
        "lateFinishedAt": None,
        "lateStatus": None,
        "inferred": False,
        "inferredFrom": None,
        **text("arguments", arguments),
        **text("effectiveArguments", None),
        **text("result", "No interaction."),
        **text("stateChanges", None),
        **text("lateResult", None),
        **alike,
        "subPlanCount": 1,
        "toolCalls": [],
        "subPlans": [
            plan(
                SUB_PLAN_ID,
                title="Medication check",
                parentPlanId=PLAN_ID,
                toolCallId=TOOL_CALL_ID,
                depth=1,
                parentActToolCall={
                    "toolCallId": TOOL_CALL_ID,
                    "name": "medication_check",
                    "arguments": arguments,
                    "status": "succeeded",
                },
                **text("userRequest", "Check the medication of p-1"),
            )
        ],
    }
    think_act: dict[str, object] = {
        "kind": "thinkAct",
        "thinkActId": THINK_ACT_ID,
        "stepId": STEP_ID,
        "requestedModel": "scripted",
        "model": "scripted",
        "inputTokens": 120,
        "outputTokens": 40,
        "costUsd": 0.0004,
        **text("thought", "I look the medication up."),
        **alike,
        "toolCalls": [call],
    }
    step: dict[str, object] = {
        "kind": "step",
        "stepId": STEP_ID,
        "planId": PLAN_ID,
        "agentName": "planner",
        **text("request", "Review the week"),
        **text("result", "All is well."),
        **alike,
        "thinkActs": [think_act],
        "toolCalls": [],
        "subPlanCount": 0,
        "subPlans": [],
    }
    return plan(
        PLAN_ID,
        title="Weekly health review",
        agentExecutions=[step],
        subPlanCount=1,
        revision=42,
        behind=None,
        unplaced=[],
        **text("userRequest", "How was my week?"),
    )


TREE_EXAMPLE = _example()
