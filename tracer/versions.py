"""What one event says of its record, of others that it writes, and of their parents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tracer.events import (
    Event,
    LateEndNoted,
    PlanFinished,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.masked_places import masked_places
from tracer.records import TEXTS, Kind
from tracer.status import Reason, Status

Fields = dict[str, Any]
"""Some fields of a record, by their names in `tracer.records`. A missing field is null."""

Version = tuple[Kind, UUID, Fields]
"""A kind of record, the record's id, and what is said of it."""


def versions(event: Event) -> Iterator[Version]:
    """Yield what `event` says; the parents that it names are placeholders with their links."""
    for kind, record_id, fields in _versions(event):
        yield kind, record_id, with_places(kind, fields)


def with_places(kind: Kind, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record, and where they have masks besides the places that they name.

    Args:
        kind: The kind of record.
        fields: Some fields of it; they are changed.
    """
    if places := masked_places(fields, TEXTS[kind]):
        fields["masked"] = sorted({*(fields.get("masked") or ()), *places})
    return fields


def _versions(event: Event) -> Iterator[Version]:
    recorder = {"recorder_id": event.recorder_id}
    if event.plan_id != event.root_plan_id:
        # So that the run can be read, should its root plan never come.
        yield Kind.PLAN, event.root_plan_id, _placeholder()
    match event:
        case PlanStarted():
            yield from _plan_started(event, recorder)
        case PlanFinished():
            fields = {**recorder, **_ending(event), "summary": event.summary}
            yield Kind.PLAN, event.plan_id, fields
            for step_id in event.not_reached_step_ids:
                fields = {
                    **recorder,
                    "plan_id": event.plan_id,
                    "status": Status.CANCELLED,
                    "reason": Reason.NOT_REACHED.value,
                    "finished_at": event.at,
                }
                yield Kind.STEP, step_id, fields
        case StepStarted() | StepFinished():
            yield Kind.PLAN, event.plan_id, _placeholder()
            fields = {**recorder, "plan_id": event.plan_id, **_step_fields(event)}
            yield Kind.STEP, event.step_id, fields
        case ThoughtStarted() | ThoughtRecorded():
            yield from _step_chain(event)
            fields = {**recorder, "step_id": event.step_id, **_thought_fields(event)}
            yield Kind.THINK_ACT, event.think_act_id, fields
            if isinstance(event, ThoughtRecorded):
                yield from _chosen_calls(event, recorder)
        case ToolCallStarted() | ToolCallFinished() | LateEndNoted():
            yield from _step_chain(event)
            links = {"step_id": event.step_id}
            if event.think_act_id is not None:
                yield Kind.THINK_ACT, event.think_act_id, _placeholder(**links)
            if event.parent_tool_call_id is not None:
                yield Kind.TOOL_CALL, event.parent_tool_call_id, _placeholder(**links)
            fields = {
                **recorder,
                **links,
                "think_act_id": event.think_act_id,
                "parent_tool_call_id": event.parent_tool_call_id,
                **_tool_call_fields(event),
            }
            yield Kind.TOOL_CALL, event.tool_call_id, fields


def parents(kind: Kind, root_plan_id: UUID, fields: Fields) -> Iterator[Version]:
    """Yield the placeholders of what a record names, and of the root plan.

    Args:
        kind: The record's kind.
        root_plan_id: Its run.
        fields: What is known of it.
    """
    yield Kind.PLAN, root_plan_id, _placeholder()
    for link, above in LINKS[kind].items():
        if fields.get(link) is not None:
            yield above, fields[link], _placeholder()


LINKS = {
    Kind.RUN: {},
    Kind.PLAN: {
        "parent_plan_id": Kind.PLAN,
        "tool_call_id": Kind.TOOL_CALL,
        "opened_by_step_id": Kind.STEP,
    },
    Kind.STEP: {"plan_id": Kind.PLAN},
    Kind.THINK_ACT: {"step_id": Kind.STEP},
    Kind.TOOL_CALL: {
        "step_id": Kind.STEP,
        "think_act_id": Kind.THINK_ACT,
        "parent_tool_call_id": Kind.TOOL_CALL,
    },
}
"""The kind of record that each link of a record names."""


def _placeholder(**links: UUID | None) -> Fields:
    return {"status": Status.UNKNOWN, **links}


def _step_chain(
    event: ThoughtStarted | ThoughtRecorded | ToolCallStarted | ToolCallFinished | LateEndNoted,
) -> Iterator[Version]:
    yield Kind.PLAN, event.plan_id, _placeholder()
    yield Kind.STEP, event.step_id, _placeholder(plan_id=event.plan_id)


def _ending(
    event: PlanFinished | StepFinished | ThoughtRecorded | ToolCallFinished,
) -> Fields:
    fields: Fields = {"status": event.status, "finished_at": event.at, "reason": event.reason}
    if event.error is not None:
        fields["error_type"] = event.error.type
        fields["error_message"] = event.error.message
        fields["error_stack"] = event.error.stack
    return fields


def _plan_started(event: PlanStarted, recorder: Fields) -> Iterator[Version]:
    if event.parent_plan_id is not None:
        yield Kind.PLAN, event.parent_plan_id, _placeholder()
    else:
        run = {
            "session_id": event.session_id,
            "subject": event.subject,
            "tags": sorted(set(event.tags)),
            "traceparent": event.traceparent,
        }
        yield Kind.RUN, event.plan_id, run
    if event.tool_call_id is not None:
        yield Kind.TOOL_CALL, event.tool_call_id, _placeholder()
    if event.opened_by_step_id is not None:
        yield Kind.STEP, event.opened_by_step_id, _placeholder(plan_id=event.parent_plan_id)
    plan = {
        **recorder,
        "status": Status.RUNNING,
        "started_at": event.at,
        "parent_plan_id": event.parent_plan_id,
        "tool_call_id": event.tool_call_id,
        "opened_by_step_id": event.opened_by_step_id,
        "position": event.position,
        "depth": event.depth,
        "title": event.title,
        "user_request": event.user_request,
        "agent_name": event.agent_name,
        "template": event.template,
        "template_version": event.template_version,
    }
    yield Kind.PLAN, event.plan_id, plan
    for position, step in enumerate(event.steps):
        pending = {
            **recorder,
            "status": Status.PENDING,
            "plan_id": event.plan_id,
            "position": position,
            "agent_name": step.agent_name,
            "request": step.request,
        }
        yield Kind.STEP, step.step_id, pending


def _step_fields(event: StepStarted | StepFinished) -> Fields:
    if isinstance(event, StepFinished):
        return {**_ending(event), "result": event.result}
    return {
        "status": Status.RUNNING,
        "started_at": event.at,
        "position": event.position,
        "agent_name": event.agent_name,
        "request": event.request,
    }


def _thought_fields(event: ThoughtStarted | ThoughtRecorded) -> Fields:
    if isinstance(event, ThoughtStarted):
        return {
            "status": Status.RUNNING,
            "started_at": event.at,
            "position": event.position,
            "requested_model": event.requested_model,
            "messages": event.messages,
        }
    return {
        **_ending(event),
        "thought": event.thought,
        "model": event.model,
        "input_tokens": event.input_tokens,
        "output_tokens": event.output_tokens,
        "cost_usd": event.cost_usd,
    }


def _chosen_calls(event: ThoughtRecorded, recorder: Fields) -> Iterator[Version]:
    for position, call in enumerate(event.tool_calls):
        starts = call.status is Status.RUNNING
        fields = {
            **recorder,
            "status": call.status,
            "started_at": event.at if starts else None,
            "step_id": event.step_id,
            "think_act_id": event.think_act_id,
            "position": position,
            "provider_call_id": call.provider_call_id,
            "name": call.name,
            "tool_type": call.tool_type,
            "arguments": call.arguments,
            "attempt": 1 if starts else None,
        }
        yield Kind.TOOL_CALL, call.tool_call_id, fields


def _tool_call_fields(event: ToolCallStarted | ToolCallFinished | LateEndNoted) -> Fields:
    if isinstance(event, LateEndNoted):
        return {
            "status": Status.UNKNOWN,
            "late_finished_at": event.at,
            "late_status": event.status,
            "late_result": event.result,
        }
    if isinstance(event, ToolCallFinished):
        return {
            **_ending(event),
            "result": event.result,
            "attempt": event.attempt,
            "forged_arguments": sorted(set(event.forged_arguments)),
            "short_circuited_by": event.short_circuited_by,
            "state_changes": event.state_changes,
            "still_running": event.still_running,
        }
    return {
        "status": Status.RUNNING,
        "started_at": event.at,
        "position": event.position,
        "provider_call_id": event.provider_call_id,
        "name": event.name,
        "tool_type": event.tool_type,
        "arguments": event.arguments,
        "attempt": event.attempt,
        "effective_arguments": event.effective_arguments,
        "forged_arguments": sorted(set(event.forged_arguments)),
    }
