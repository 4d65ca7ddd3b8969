"""How events become records, and how two versions of a record become one.

Every store applies the same rules, so that any permutation, split or repetition of the same
events ends in the same records. `RULES` says the rule of each field; the memory store and the
reduction of a batch apply it in Python (`merged`), the Postgres store generates its SQL from it.
`docs/protocol.md` shows the table to other languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tracer.events import (
    ErrorInfo,
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
from tracer.records import Kind
from tracer.status import Reason, Status

Fields = dict[str, Any]
"""Some fields of a record, by their names in `tracer.records`. A missing field is null."""

Key = tuple[UUID, UUID]
"""What tells records of one kind and project apart: the run's id and the record's own."""

Reduced = dict[Kind, dict[Key, Fields]]
"""At most one version of each record, by kind and key."""


@dataclass(frozen=True)
class MergeRules:
    """The rule of each field of one kind of record.

    Two versions merge field by field, null being less than everything, text compared by its
    UTF-8 bytes, a status by its rank.
    """

    id_field: str
    """The record's own id."""
    greatest: tuple[str, ...]
    """Start fields: the greater value stays. They are recorded once, so they seldom differ."""
    ending: tuple[str, ...]
    """One tuple, compared from left to right: the greater one stays as a whole."""
    least: tuple[str, ...] = ("started_at",)
    """The lesser value stays; null gives way."""
    late: tuple[str, ...] = ()
    """A second tuple, like `ending`, for what happened after it."""
    union: tuple[str, ...] = ()
    """Lists whose items are put together, sorted, each once."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that events can fill, the id aside."""
        return self.greatest + self.least + self.ending + self.late + self.union


_ERROR = ("error_type", "error_message", "error_stack")
_ENDING = ("status", "finished_at", "reason")

RULES: dict[Kind, MergeRules] = {
    Kind.RUN: MergeRules(
        id_field="root_plan_id",
        greatest=("session_id", "subject", "traceparent"),
        ending=(),
        least=(),
        union=("tags",),
    ),
    Kind.PLAN: MergeRules(
        id_field="plan_id",
        greatest=(
            "parent_plan_id",
            "tool_call_id",
            "opened_by_step_id",
            "position",
            "depth",
            "title",
            "user_request",
            "agent_name",
            "template",
            "template_version",
            "recorder_id",
        ),
        ending=(*_ENDING, "summary", *_ERROR),
    ),
    Kind.STEP: MergeRules(
        id_field="step_id",
        greatest=("plan_id", "position", "agent_name", "request", "recorder_id"),
        ending=(*_ENDING, "result", *_ERROR),
    ),
    Kind.THINK_ACT: MergeRules(
        id_field="think_act_id",
        greatest=("step_id", "position", "requested_model", "messages", "recorder_id"),
        ending=(
            *_ENDING,
            "thought",
            "model",
            "input_tokens",
            "output_tokens",
            "cost_usd",
            *_ERROR,
        ),
    ),
    Kind.TOOL_CALL: MergeRules(
        id_field="tool_call_id",
        greatest=(
            "step_id",
            "think_act_id",
            "parent_tool_call_id",
            "position",
            "provider_call_id",
            "name",
            "tool_type",
            "arguments",
            "attempt",
            "recorder_id",
        ),
        ending=(*_ENDING, "result", *_ERROR),
        late=("late_finished_at", "late_status", "late_result"),
    ),
}


def reduce_events(events: Iterable[Event]) -> Reduced:
    """Return what `events` say of each record, placeholders of the parents that they name included."""
    reduced: Reduced = {kind: {} for kind in Kind}
    for event in events:
        for kind, record_id, fields in _versions(event):
            versions = reduced[kind]
            key = (event.root_plan_id, record_id)
            earlier = versions.get(key)
            versions[key] = fields if earlier is None else merged(kind, earlier, fields)
    return reduced


def merged(kind: Kind, one: Fields, other: Fields) -> Fields:
    """Return the merger of two versions of one record; neither is changed."""
    rules = RULES[kind]
    result = dict(one)
    for field in rules.greatest:
        value = other.get(field)
        if value is not None and (result.get(field) is None or value > result[field]):
            result[field] = value
    for field in rules.least:
        value = other.get(field)
        if value is not None and (result.get(field) is None or value < result[field]):
            result[field] = value
    for group in (rules.ending, rules.late):
        if group and _comparable(group, other) > _comparable(group, one):
            for field in group:
                result[field] = other.get(field)
    for field in rules.union:
        result[field] = sorted({*(one.get(field) or ()), *(other.get(field) or ())})
    return result


def _comparable(group: tuple[str, ...], fields: Fields) -> list[tuple[bool, Any]]:
    values = (fields.get(field) for field in group)
    return [(v is not None, v.rank if isinstance(v, Status) else v) for v in values]


Version = tuple[Kind, UUID, Fields]


def _versions(event: Event) -> Iterator[Version]:
    """Yield what one event says of its record, of others that it writes, and of their parents."""
    recorder = {"recorder_id": event.recorder_id}
    match event:
        case PlanStarted():
            yield from _plan_started(event, recorder)
        case PlanFinished():
            yield Kind.PLAN, event.plan_id, {
                **recorder,
                **_ending(event),
                "summary": event.summary,
            }
            for step_id in event.not_reached_step_ids:
                yield Kind.STEP, step_id, {
                    **recorder,
                    "plan_id": event.plan_id,
                    "status": Status.CANCELLED,
                    "reason": Reason.NOT_REACHED.value,
                    "finished_at": event.at,
                }
        case StepStarted() | StepFinished():
            yield Kind.PLAN, event.plan_id, _placeholder()
            yield Kind.STEP, event.step_id, {
                **recorder,
                "plan_id": event.plan_id,
                **_step_fields(event),
            }
        case ThoughtStarted() | ThoughtRecorded():
            yield from _step_chain(event)
            yield Kind.THINK_ACT, event.think_act_id, {
                **recorder,
                "step_id": event.step_id,
                **_thought_fields(event),
            }
            if isinstance(event, ThoughtRecorded):
                yield from _chosen_calls(event, recorder)
        case ToolCallStarted() | ToolCallFinished() | LateEndNoted():
            yield from _step_chain(event)
            links = {"step_id": event.step_id}
            if event.think_act_id is not None:
                yield Kind.THINK_ACT, event.think_act_id, _placeholder(**links)
            if event.parent_tool_call_id is not None:
                yield Kind.TOOL_CALL, event.parent_tool_call_id, _placeholder(**links)
            yield Kind.TOOL_CALL, event.tool_call_id, {
                **recorder,
                **links,
                "think_act_id": event.think_act_id,
                "parent_tool_call_id": event.parent_tool_call_id,
                **_tool_call_fields(event),
            }


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
    error = event.error or ErrorInfo.model_construct(type=None, message=None, stack=None)
    return {
        "status": event.status,
        "finished_at": event.at,
        "reason": event.reason,
        "error_type": error.type,
        "error_message": error.message,
        "error_stack": error.stack,
    }


def _plan_started(event: PlanStarted, recorder: Fields) -> Iterator[Version]:
    if event.parent_plan_id is not None:
        yield Kind.PLAN, event.parent_plan_id, _placeholder()
    else:
        yield Kind.RUN, event.plan_id, {
            "session_id": event.session_id,
            "subject": event.subject,
            "tags": sorted(set(event.tags)),
            "traceparent": event.traceparent,
        }
    if event.tool_call_id is not None:
        yield Kind.TOOL_CALL, event.tool_call_id, _placeholder()
    if event.opened_by_step_id is not None:
        yield Kind.STEP, event.opened_by_step_id, _placeholder(plan_id=event.parent_plan_id)
    yield Kind.PLAN, event.plan_id, {
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
    for position, step in enumerate(event.steps):
        yield Kind.STEP, step.step_id, {
            **recorder,
            "status": Status.PENDING,
            "plan_id": event.plan_id,
            "position": position,
            "agent_name": step.agent_name,
            "request": step.request,
        }


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
        yield Kind.TOOL_CALL, call.tool_call_id, {
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


def _tool_call_fields(event: ToolCallStarted | ToolCallFinished | LateEndNoted) -> Fields:
    if isinstance(event, LateEndNoted):
        return {
            "status": Status.UNKNOWN,
            "late_finished_at": event.at,
            "late_status": event.status,
            "late_result": event.result,
        }
    if isinstance(event, ToolCallFinished):
        return {**_ending(event), "result": event.result, "attempt": event.attempt}
    return {
        "status": Status.RUNNING,
        "started_at": event.at,
        "position": event.position,
        "provider_call_id": event.provider_call_id,
        "name": event.name,
        "tool_type": event.tool_type,
        "arguments": event.arguments,
        "attempt": event.attempt,
    }
