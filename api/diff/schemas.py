"""Two runs compared, for the OpenAPI document; a test holds it to `tracer.lineage.diff`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from api.plans.schemas import NodeKind, NodeTotals
from api.schemas import PLAN_ID, TOOL_CALL_ID, ShownStatus, read_config
from tracer.lineage.diff import Change, Difference


class ComparedRun(BaseModel):
    """A run that is compared."""

    model_config = read_config()

    root_plan_id: UUID
    revision: int
    title: str | None
    agent_name: str | None
    status: ShownStatus
    started_at: datetime | None
    duration_ms: float | None
    totals: NodeTotals


class ChangeCounts(BaseModel):
    """How many pairs there are of each kind."""

    model_config = read_config(added=1, removed=0, changed=2, same=11)

    added: int
    removed: int
    changed: int
    same: int


class ComparedRecord(BaseModel):
    """A record as one of the runs has it."""

    model_config = read_config()

    id: UUID
    name: str | None
    """The plan's title, the step's agent, the round's model or the tool's name."""
    status: ShownStatus
    reason: str | None
    error_type: str | None
    started_at: datetime | None
    duration_ms: float | None
    attempt: int | None
    """Of a tool call."""
    totals: NodeTotals
    """The record and all below it."""


class RecordPair(BaseModel):
    """A record of the left run and the one of the right run that matches it, or one of them."""

    model_config = read_config()

    kind: NodeKind
    name: str | None
    """What the left one is called, else the right one."""
    left: ComparedRecord | None
    right: ComparedRecord | None
    change: Change
    differs: list[Difference]
    """In what they differ; a duration where one took at least a quarter longer, and 0.1 s."""
    changed_below: int
    """How many pairs below are not `same`."""
    children: list[RecordPair]


class RunDiff(BaseModel):
    """Two runs aligned by plan, step and tool."""

    model_config = read_config()

    left: ComparedRun
    right: ComparedRun
    counts: ChangeCounts
    root: RecordPair


def _example() -> dict[str, Any]:
    other = PLAN_ID[:-1] + "3"
    totals = {
        "inputTokens": 120,
        "outputTokens": 40,
        "costUsd": 0.0004,
        "toolCalls": 1,
        "failures": 0,
    }
    at = {"startedAt": "2026-11-21T22:21:52.462812Z", "durationMs": 1000.0}

    def run(plan_id: str) -> dict[str, Any]:
        named = {"title": "Weekly health review", "agentName": "planner"}
        return {
            "rootPlanId": plan_id,
            "revision": 42,
            **named,
            "status": "succeeded",
            **at,
            "totals": totals,
        }

    def side(record_id: str, name: str, **more: Any) -> dict[str, Any]:
        outcome = {"status": "succeeded", "reason": None, "errorType": None}
        shown = {"id": record_id, "name": name, **outcome, **at, "attempt": None, "totals": totals}
        return shown | more

    call = {
        "kind": "toolCall",
        "name": "measure",
        "left": side(TOOL_CALL_ID, "measure", attempt=1),
        "right": side(
            TOOL_CALL_ID[:-1] + "c",
            "measure",
            attempt=3,
            status="failed",
            reason="tool_error",
            errorType="ValueError",
        ),
        "change": "changed",
        "differs": ["outcome", "result", "attempts"],
        "changedBelow": 0,
        "children": [],
    }
    root = {
        "kind": "plan",
        "name": "Weekly health review",
        "left": side(PLAN_ID, "Weekly health review"),
        "right": side(other, "Weekly health review"),
        "change": "same",
        "differs": [],
        "changedBelow": 1,
        "children": [call],
    }
    counts = {"added": 0, "removed": 0, "changed": 1, "same": 1}
    return {"left": run(PLAN_ID), "right": run(other), "counts": counts, "root": root}


DIFF_EXAMPLE = _example()
