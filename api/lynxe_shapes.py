"""A tree in the shape in which Lynxe serves its records, for front ends that were written for it.

What was not recorded, and what is always null with Lynxe, is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from tracer.nodes import NODES, Node, PlanNode, StepNode, StepRow, ThinkActNode, ToolCallNode
from tracer.records import Kind

CHILDREN = ("agentExecutionSequence", "subPlanExecutionRecords")
"""Where a plan has its agents, and an agent its sub-plans."""

_STATUSES = {"unknown": "IDLE", "pending": "IDLE", "running": "RUNNING"}
"""Lynxe's words for what is open; whatever has ended is `FINISHED`."""

_WELL = ("unknown", "pending", "running", "succeeded")

Messages = Mapping[UUID, str]
"""What the model was given in each round, by its id."""


def plan_record(top: PlanNode, opener: ToolCallNode | None, messages: Messages) -> dict[str, Any]:
    """Return a plan with everything below it, as Lynxe's `PlanExecutionRecord`.

    Args:
        top: The plan's node.
        opener: The tool call that opened it, where one did.
        messages: What the models were given.
    """
    plan = _with_sub_plans([(top, opener)], messages)[0]
    if plan["completed"]:
        plan["structureResult"] = _last_result(plan["agentExecutionSequence"])
    return plan


def agent_record(step: StepNode, messages: Messages) -> dict[str, Any]:
    """Return a step with everything below it, as Lynxe's `AgentExecutionRecord`.

    Args:
        step: The step's node.
        messages: What the models were given.
    """
    agent, opened = _agent(step, messages)
    agent["subPlanExecutionRecords"] = _with_sub_plans(opened, messages)
    return agent


Opened = tuple[PlanNode, ToolCallNode | None]
"""A plan, and the tool call that opened it."""


def _with_sub_plans(plans: list[Opened], messages: Messages) -> list[dict[str, Any]]:
    """Return plans with everything below them, however deep that is."""
    records: list[dict[str, Any]] = []
    waiting = [(node, opener, records) for node, opener in reversed(plans)]
    while waiting:
        node, opener, into = waiting.pop()
        plan = _plan(node, opener)
        into.append(plan)
        for step in _steps(node):
            agent, opened = _agent(step, messages)
            plan["agentExecutionSequence"].append(agent)
            below = agent["subPlanExecutionRecords"]
            waiting += [(each, call, below) for each, call in reversed(opened)]
        recorded = plan["agentExecutionSequence"][: len(node.agent_executions)]
        plan["currentStepIndex"] = _current_step(recorded, plan["completed"])
    return records


def _plan(node: PlanNode, opener: ToolCallNode | None) -> dict[str, Any]:
    return {
        "id": number_of(node.plan_id),
        "currentPlanId": node.plan_id,
        "rootPlanId": node.root_plan_id,
        "parentPlanId": node.parent_plan_id,
        "toolCallId": node.tool_call_id,
        "title": node.title,
        "userRequest": node.user_request,
        "startTime": _moment(node.started_at),
        "endTime": _moment(node.finished_at),
        "currentStepIndex": 0,
        "completed": _status(node) == "FINISHED",
        "summary": node.summary,
        "agentExecutionSequence": [],
        "userInputWaitState": None,
        "modelName": None,
        "parentActToolCall": None if opener is None else _act_tool_info(opener),
        "structureResult": None,
    }


def _steps(plan: PlanNode) -> list[StepNode]:
    """Return a plan's steps; at the end one for what hangs under nothing known, where there is."""
    loose = plan.unplaced or []
    if not loose:
        return plan.agent_executions
    nothing = dict.fromkeys(StepRow.__struct_fields__)
    nowhere: StepNode = NODES[Kind.STEP](**nothing | {"step_id": "", "status": "unknown"})
    nowhere.think_acts = [node for node in loose if isinstance(node, ThinkActNode)]
    nowhere.tool_calls = [node for node in loose if isinstance(node, ToolCallNode)]
    nowhere.sub_plans = [node for node in loose if isinstance(node, PlanNode)]
    steps = [node for node in loose if isinstance(node, StepNode)]
    return [*plan.agent_executions, *steps, nowhere]


def _agent(step: StepNode, messages: Messages) -> tuple[dict[str, Any], list[Opened]]:
    """Return a step without its sub-plans, and these, the first that began first."""
    step_id = step.step_id or None
    number = None if step_id is None else number_of(step_id)
    rounds = [_round(each, number, messages) for each in step.think_acts]
    if step.tool_calls:
        rounds.append(_calls_without_a_round(step.tool_calls, number))
    chosen = [call for each in step.think_acts for call in each.tool_calls]
    calls = _flat([*chosen, *step.tool_calls])
    opened: list[Opened] = [(plan, call) for call in calls for plan in call.sub_plans]
    opened += [(plan, None) for plan in step.sub_plans]
    opened.sort(key=lambda each: _order(each[0].started_at))
    latest = next((each for each in reversed(rounds) if each["actToolInfoList"]), None)
    last_call = latest["actToolInfoList"][-1] if latest else {}
    status = _status(step)
    agent = {
        "id": number,
        "stepId": step_id,
        "conversationId": None,
        "agentName": step.agent_name,
        "agentDescription": None,
        "startTime": _moment(step.started_at),
        "endTime": _moment(step.finished_at),
        "maxSteps": None,
        "currentStep": len(step.think_acts),
        "status": status,
        "agentRequest": step.request,
        "result": step.result,
        "errorMessage": _error(step),
        "modelName": None,
        "thinkActSteps": rounds,
        "subPlanExecutionRecords": [],
        "latestMethodName": last_call.get("name"),
        "latestMethodArgs": last_call.get("parameters"),
        "latestRoundNumber": len(step.think_acts) or None,
        "completed": status == "FINISHED",
        "running": status == "RUNNING",
        "idle": status == "IDLE",
        "completedThinkActStepsCount": 0,
        "subPlanCount": len(opened),
    }
    return agent, opened


def _round(node: ThinkActNode, agent: int | None, messages: Messages) -> dict[str, Any]:
    return {
        **_calls_without_a_round(node.tool_calls, agent),
        "id": number_of(node.think_act_id),
        "thinkStartTime": _moment(node.started_at),
        "thinkInput": messages.get(UUID(node.think_act_id)),
        "thinkOutput": node.thought,
        "errorMessage": _error(node),
        "inputCharCount": node.input_tokens,
        "outputCharCount": node.output_tokens,
    }


def _calls_without_a_round(calls: list[ToolCallNode], agent: int | None) -> dict[str, Any]:
    """Return calls as a round of which nothing is known: Lynxe has no other place for them."""
    return {
        "id": None,
        "parentExecutionId": agent,
        "thinkStartTime": None,
        "thinkEndTime": None,
        "actStartTime": None,
        "actEndTime": None,
        "thinkInput": None,
        "thinkOutput": None,
        "actionNeeded": bool(calls),
        "actionDescription": None,
        "actionResult": None,
        "status": None,
        "errorMessage": None,
        "inputCharCount": None,
        "outputCharCount": None,
        "modelContextLimit": None,
        "toolName": None,
        "toolParameters": None,
        "actToolInfoList": [_act_tool_info(call) for call in _flat(calls)],
    }


def _flat(calls: Iterable[ToolCallNode]) -> list[ToolCallNode]:
    """Return calls, each with the items of its batch after it."""
    flat = []
    waiting = [*calls][::-1]
    while waiting:
        call = waiting.pop()
        flat.append(call)
        waiting += call.tool_calls[::-1]
    return flat


def _act_tool_info(call: ToolCallNode) -> dict[str, Any]:
    """Return a call; what went wrong is its result, since that is where Lynxe has it."""
    result = call.result
    return {
        "name": call.name,
        "parameters": call.arguments,
        "result": result if result is not None else _error(call),
        "id": call.tool_call_id,
    }


def _status(node: Node) -> str:
    return _STATUSES.get(node.status, "FINISHED")


def _error(node: Node) -> str | None:
    """Return what went wrong: Lynxe tells failed, cancelled and abandoned apart nowhere else."""
    if node.status in _WELL:
        return None
    error = node.error or {}
    said: str = error.get("message") or error.get("type") or node.reason or node.status
    return said


def _current_step(agents: list[dict[str, Any]], is_completed: bool) -> int:
    """Return the index that Lynxe computes: the running step, else the first that is open."""
    if not is_completed:
        for open_status in ("running", "idle"):
            for index, agent in enumerate(agents):
                if agent[open_status]:
                    return index
    return max(0, len(agents) - 1)


def _last_result(agents: list[dict[str, Any]]) -> str | None:
    rounds = agents[-1]["thinkActSteps"] if agents else []
    calls = rounds[-1]["actToolInfoList"] if rounds else []
    return calls[-1]["result"] if calls else None


def number_of(record_id: str) -> int:
    """Return the number that stands for a record: the first 53 bits of its UUID's SHA-256.

    Lynxe's ids are numbers. JavaScript holds these, and UUIDs themselves begin alike.
    """
    return int.from_bytes(sha256(UUID(record_id).bytes).digest()[:8]) >> 11


def _moment(at: datetime | None) -> list[int] | None:
    """Return a time as Jackson writes a `LocalDateTime`, in UTC: zeros at the end are left out."""
    if at is None:
        return None
    at = at.astimezone(UTC)
    seconds = [at.second, at.microsecond * 1000]
    while seconds and seconds[-1] == 0:
        seconds.pop()
    return [at.year, at.month, at.day, at.hour, at.minute, *seconds]


def _order(at: datetime | None) -> tuple[bool, datetime]:
    return at is None, at or datetime.min.replace(tzinfo=UTC)
