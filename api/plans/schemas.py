"""Schemas of the nodes of a tree, for the OpenAPI document.

The server does not use these classes to create responses. It encodes the classes of
`tracer.lineage.nodes` directly. A test checks that both agree.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

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

NodeKind = Literal["plan", "step", "thinkAct", "toolCall"]
"""The kinds of record below a run."""


class NodeTotals(BaseModel):
    """Totals of tokens, cost, tool calls and failures, for a part of the tree."""

    model_config = read_config(
        inputTokens=1200, outputTokens=80, costUsd=0.004, unpricedCalls=0, toolCalls=2, failures=0
    )

    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """The sum of the known costs in US dollars. Null if the sum is zero and the cost of at least
    one model call is unknown."""
    unpriced_calls: int
    """The number of model calls whose cost is unknown. Calls that neither succeeded nor used tokens
    do not count."""
    tool_calls: int
    failures: int
    """The number of failed records that have no failed record below them."""


_NODE_CONFIG = read_config()
# Fields with a default are omitted if they do not apply.
_NODE_CONFIG["json_schema_serialization_defaults_required"] = False


class _NodeFields(BaseModel):
    model_config = _NODE_CONFIG

    status: ShownStatus
    reason: str | None
    """How the record ended, such as `timed_out`."""
    started_at: datetime | None
    finished_at: datetime | None
    abandoned_at: datetime | None
    duration_ms: float | None
    """The duration in milliseconds; null while the record is open."""
    position: int | None
    """The record's position among its siblings, from 0."""
    masked: list[str] | None
    """The paths of masked secrets and omitted payloads in the record; null if there are none."""
    error: ErrorSchema | None


class _Totals(BaseModel):
    model_config = _NODE_CONFIG

    own: NodeTotals
    """The totals of the node and the records below it, without sub-plans."""
    cumulative: NodeTotals
    """The totals of the node and all records below it, including sub-plans. The parameter `depth`
    has no effect on them."""


# Rows: `make fields` writes them.


class PlanFields(_NodeFields):
    """A plan without its steps. Long strings are previews."""

    kind: Literal["plan"]
    root_plan_id: UUID
    """The id of the run, which is the id of its root plan."""
    plan_id: UUID
    """The plan's id. The id of a root plan is also the id of the run."""
    parent_plan_id: UUID | None
    """The plan whose tool call or step opened this one; null for the root plan."""
    tool_call_id: UUID | None
    """The tool call that opened this sub-plan."""
    opened_by_step_id: UUID | None
    """The step that opened this sub-plan without a tool call: a hand-off."""
    depth: int | None
    """The number of plans above this one: 0 for the root plan."""
    title: str | None
    """The title; if none was recorded, the first line of the request."""
    agent_name: str | None
    """The agent that runs the plan."""
    follows_provider_call_id: str | None
    """The provider call id of an earlier run's tool call that caused this plan when it ended."""
    template: str | None
    """The plan template that the plan was created from."""
    template_version: str | None
    """The version of the template."""
    inferred: bool
    """True if the link to its parent was reconstructed rather than recorded."""
    inferred_from: str | None
    """The evidence for the reconstructed link."""
    user_request: str | None
    """The request, word for word."""
    user_request_bytes: int | None
    user_request_truncated: bool
    summary: str | None
    """The outcome of the plan, as text."""
    summary_bytes: int | None
    summary_truncated: bool


class StepFields(_NodeFields):
    """A step without its rounds. Long strings are previews."""

    kind: Literal["step"]
    step_id: UUID
    """The step's id."""
    plan_id: UUID | None
    """The plan of the step; null if only the step's id is known."""
    agent_name: str | None
    """The agent that executes the step."""
    request: str | None
    """The request to the agent."""
    request_bytes: int | None
    request_truncated: bool
    result: str | None
    """The agent's final answer."""
    result_bytes: int | None
    result_truncated: bool


class ThinkActFields(_NodeFields):
    """A round without its tool calls. Long strings are previews."""

    kind: Literal["thinkAct"]
    think_act_id: UUID
    """The think-act's id."""
    step_id: UUID | None
    """The step of the think-act; null if only the think-act's id is known."""
    requested_model: str | None
    """The name of the requested model."""
    model: str | None
    """The name of the model that answered, as the provider reports it."""
    input_tokens: int | None
    """The number of input tokens."""
    output_tokens: int | None
    """The number of output tokens."""
    cost_usd: float | None
    """The cost in US dollars: by the project's prices, else as reported, else by the price list."""
    thought: str | None
    """The text of the model's answer."""
    thought_bytes: int | None
    thought_truncated: bool


class ToolCallFields(_NodeFields):
    """A tool call without its sub-plans. Long strings are previews."""

    kind: Literal["toolCall"]
    tool_call_id: UUID
    """The tool call's id."""
    step_id: UUID | None
    """The step that made the call; null if only the call's id is known."""
    think_act_id: UUID | None
    """The think-act that requested the call; null for a call outside of any think-act."""
    parent_tool_call_id: UUID | None
    """The batch call that contains this call, or the call whose tool made it."""
    continued_plan_id: UUID | None
    """The sub-plan that this call continued. An earlier tool call opened the sub-plan."""
    provider_call_id: str | None
    """The id that the model provider assigned. It may repeat or be empty."""
    name: str | None
    """The tool's name as the model called it."""
    tool_type: str | None
    """The kind of tool, such as `STATELESS` or `SUBPLAN`."""
    attempt: int | None
    """The number of attempts, at least 1."""
    forged_arguments: list[str]
    """The names of hidden parameters that the model or a hook tried to supply, sorted."""
    short_circuited_by: str | None
    """The hook that returned the result instead of the tool."""
    still_running: bool | None
    """True if the call ended while its tool continued to run, after a timeout for example."""
    inferred: bool
    """True if the link to its parent was reconstructed rather than recorded."""
    inferred_from: str | None
    """The evidence for the reconstructed link."""
    arguments: str | None
    """The arguments as the received text, usually JSON."""
    arguments_bytes: int | None
    arguments_truncated: bool
    result: str | None
    """The result as the received text, usually JSON."""
    result_bytes: int | None
    result_truncated: bool
    effective_arguments: str | None
    """The arguments of the latest attempt, if hooks changed them."""
    effective_arguments_bytes: int | None
    effective_arguments_truncated: bool
    state_changes: str | None
    """The call's changes of the session state, as the text of a JSON array."""
    state_changes_bytes: int | None
    state_changes_truncated: bool


# Rows: end.


class ToolCallNodeSchema(ToolCallFields, _Totals):
    """A tool call, with the sub-plans that it opened.

    If the call made other tool calls itself, as the call of a batch tool does, it has these, too.
    """

    sub_plan_count: int
    """The number of sub-plans that the call opened, whether the tree shows them or not."""
    sub_plans: list[PlanNodeSchema]
    tool_calls: list[ToolCallNodeSchema]
    """The tool calls that this call made itself, as the call of a batch tool does."""


class ThinkActNodeSchema(ThinkActFields, _Totals):
    """One round, with the tool calls that its model chose."""

    tool_calls: list[ToolCallNodeSchema]


class StepNodeSchema(StepFields, _Totals):
    """A step, with its rounds, its other tool calls and the sub-plans that it opened."""

    think_acts: list[ThinkActNodeSchema]
    tool_calls: list[ToolCallNodeSchema]
    """The calls that the step made outside of any round."""
    sub_plan_count: int
    """The number of sub-plans that the step handed off to, whether the tree shows them or not."""
    sub_plans: list[PlanNodeSchema]
    """The sub-plans that the agent opened without a tool call."""


class FailureOriginSchema(BaseModel):
    """A record at which a failure began: it failed, and no record below it failed."""

    model_config = read_config(kind="toolCall", id=TOOL_CALL_ID, isHandled=False)

    kind: NodeKind
    id: UUID
    is_handled: bool
    """Whether the failure was handled: a record above this record did not fail."""


class PlanNodeSchema(PlanFields, _Totals):
    """A plan, with its steps."""

    parent_act_tool_call: ParentActToolCall | None
    """A summary of the tool call that opened the plan."""
    agent_executions: list[StepNodeSchema]
    sub_plan_count: int
    """The number of sub-plans that the plan's steps opened, whether the tree shows them or not."""
    unplaced: list[PlanNodeSchema | StepNodeSchema | ThinkActNodeSchema | ToolCallNodeSchema] = []
    """At a root plan only: nodes whose parent is not known yet."""
    failure_origins: list[FailureOriginSchema] = []
    """Only at the root of the tree: the records at which failures began. Records that made the
    root fail come first, then the deepest records, then the earliest."""
    revision: int = 0
    """Only at the root of the tree: the run's revision. Watch the run from this revision on."""
    behind: BehindSchema | None = None
    """Only at the root of the tree: the spans that the tree lacks; null if it lacks none."""


def _names(schema: type[BaseModel]) -> list[str]:
    return [to_camel(name) for name in schema.model_fields]


def _example() -> dict[str, object]:
    totals = {
        "inputTokens": 120,
        "outputTokens": 40,
        "costUsd": 0.0004,
        "unpricedCalls": 0,
        "toolCalls": 1,
        "failures": 0,
    }

    def node(schema: type[_NodeFields], **fields: object) -> dict[str, object]:
        """Return an example node. Missing fields are null, and all texts are complete."""
        for name in [name for name in fields if f"{name}Bytes" in _names(schema)]:
            fields[f"{name}Bytes"] = len(str(fields[name]))
        unset = {name: False if name.endswith("Truncated") else None for name in _names(schema)}
        return unset | {
            "kind": get_args(schema.model_fields["kind"].annotation)[0],
            "status": "succeeded",
            "startedAt": "2026-11-21T22:21:52.462812Z",
            "finishedAt": "2026-11-21T22:21:53.462812Z",
            "durationMs": 1000.0,
            "position": 0,
            "own": totals,
            "cumulative": totals,
            **fields,
        }

    def plan(plan_id: str, **fields: object) -> dict[str, object]:
        plan_fields: dict[str, object] = {
            "planId": plan_id,
            "rootPlanId": PLAN_ID,
            "parentActToolCall": None,
            "agentName": "planner",
            "inferred": False,
            "depth": 0,
            "subPlanCount": 0,
            "agentExecutions": [],
        }
        return node(PlanFields, **plan_fields | fields)

    arguments = '{"patient": "p-1"}'
    call = node(
        ToolCallFields,
        toolCallId=TOOL_CALL_ID,
        stepId=STEP_ID,
        thinkActId=THINK_ACT_ID,
        providerCallId="call_0",
        name="medication_check",
        toolType="SUBPLAN",
        attempt=1,
        forgedArguments=[],
        inferred=False,
        arguments=arguments,
        result="No interaction.",
        subPlanCount=1,
        toolCalls=[],
        subPlans=[
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
                userRequest="Check the medication of p-1",
            )
        ],
    )
    think_act = node(
        ThinkActFields,
        thinkActId=THINK_ACT_ID,
        stepId=STEP_ID,
        requestedModel="scripted",
        model="scripted",
        inputTokens=120,
        outputTokens=40,
        costUsd=0.0004,
        thought="I look the medication up.",
        toolCalls=[call],
    )
    step = node(
        StepFields,
        stepId=STEP_ID,
        planId=PLAN_ID,
        agentName="planner",
        request="Review the week",
        result="All is well.",
        thinkActs=[think_act],
        toolCalls=[],
        subPlanCount=0,
        subPlans=[],
    )
    return plan(
        PLAN_ID,
        title="Weekly health review",
        agentExecutions=[step],
        subPlanCount=1,
        revision=42,
        behind=None,
        unplaced=[],
        userRequest="How was my week?",
    )


TREE_EXAMPLE = _example()
