"""An example of the comparison of two runs, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from api.schemas import PLAN_ID, TOOL_CALL_ID


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
