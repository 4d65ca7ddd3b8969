"""Schemas of the comparison of two runs, for the OpenAPI document.

The server creates responses without them. A test checks that responses and schemas agree.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from api.plans.schemas import NodeKind, NodeTotals
from api.schemas import PLAN_ID, TOOL_CALL_ID, ShownStatus, read_config
from tracer.lineage.diff import Change, Difference


class ComparedRun(BaseModel):
    """One of the two compared runs."""

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
    """How many pairs of records were added, removed, changed or are the same."""

    model_config = read_config(added=1, removed=0, changed=2, same=11)

    added: int
    removed: int
    changed: int
    same: int


class ComparedRecord(BaseModel):
    """A record of one of the compared runs."""

    model_config = read_config()

    id: UUID
    name: str | None
    """The plan's title, the step's agent, the beginning of the round's answer, or the tool's name;
    null if the record has none."""
    calls: list[str]
    """The names of the tools that a round chose; empty for other records."""
    model: str | None
    """The model of a round."""
    status: ShownStatus
    reason: str | None
    error_type: str | None
    error_message: str | None
    """The first 300 characters of the error's message."""
    started_at: datetime | None
    duration_ms: float | None
    attempt: int | None
    """The number of attempts of a tool call; null for other records."""
    totals: NodeTotals
    """The totals of the record and all records below it."""


class RecordPair(BaseModel):
    """A record of the left run and its match in the right run. One of them may be missing."""

    model_config = read_config()

    kind: NodeKind
    name: str | None
    """The name of the left record; if there is no left record, the name of the right record."""
    left: ComparedRecord | None
    right: ComparedRecord | None
    change: Change
    differs: list[Difference]
    """The aspects that differ. Durations differ if one is longer by at least a quarter and by at
    least 0.1 s."""
    changed_below: int
    """The number of pairs below this pair whose `change` is not `same`."""
    children: list[RecordPair]


class RunDiff(BaseModel):
    """The comparison of two runs, as a tree of matching records."""

    model_config = read_config()

    left: ComparedRun
    right: ComparedRun
    counts: ChangeCounts
    messages_compared: bool
    """Whether the messages of rounds were compared. False if the two runs together have more than
    64 MB of messages. Then no `differs` contains `messages`."""
    root: RecordPair


def _example() -> dict[str, Any]:
    other = PLAN_ID[:-1] + "3"
    totals = {
        "inputTokens": 120,
        "outputTokens": 40,
        "costUsd": 0.0004,
        "unpricedCalls": 0,
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
        outcome = {"status": "succeeded", "reason": None, "errorType": None, "errorMessage": None}
        said: dict[str, Any] = {"name": name, "calls": [], "model": None}
        shown = {"id": record_id, **said, **outcome, **at, "attempt": None, "totals": totals}
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
            errorMessage="no such patient",
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
    return {
        "left": run(PLAN_ID),
        "right": run(other),
        "counts": counts,
        "messagesCompared": True,
        "root": root,
    }


DIFF_EXAMPLE = _example()
