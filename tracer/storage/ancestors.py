"""The lineage of a tool call, computed from its run's records."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    Kind,
    PlanExecutionRecord,
    ThinkActRecord,
)
from tracer.store import AnyRecord

Place = tuple[Kind, UUID]


def parent_of(record: AnyRecord) -> Place | None:
    """Return the kind and id of the parent of `record` in the tree."""
    match record:
        case ActToolInfo():
            parents = {
                Kind.TOOL_CALL: record.parent_tool_call_id,
                Kind.THINK_ACT: record.think_act_id,
                Kind.STEP: record.step_id,
            }
        case ThinkActRecord():
            parents = {Kind.STEP: record.step_id}
        case AgentExecutionRecord():
            parents = {Kind.PLAN: record.plan_id}
        case PlanExecutionRecord():
            parents = {
                Kind.TOOL_CALL: record.tool_call_id,
                Kind.STEP: record.opened_by_step_id,
            }
    return next(((kind, id_) for kind, id_ in parents.items() if id_ is not None), None)


def path_down_to(call: ActToolInfo, records: Mapping[Place, AnyRecord]) -> list[AnyRecord]:
    """Return the ancestors of `call`, outermost first, and `call` itself.

    If an ancestor is missing from `records`, the path starts below it. If the records form a
    circle, each record is returned once.
    """
    path: list[AnyRecord] = [call]
    seen: set[Place] = {(Kind.TOOL_CALL, call.tool_call_id)}
    place = parent_of(call)
    while place is not None and place not in seen and place in records:
        seen.add(place)
        path.append(records[place])
        place = parent_of(records[place])
    return path[::-1]
