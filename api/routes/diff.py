"""The route that compares two runs."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Path, Request, Response

from api.conditional import NOT_MODIFIED, Conditional
from api.dependencies import Reader
from api.problems import documented
from api.requests import until_client_leaves
from api.routes.plans import content, tree_json
from api.schemas import PLAN_ID, TOOL_CALL_ID
from tracer.lineage import Payloads, TreeRows, build_tree
from tracer.lineage.diff import RunDiff, diff_trees
from tracer.records import Kind
from tracer.store import TraceReader

# --- An example of the comparison of two runs, for the OpenAPI document.


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
        "inherits": False,
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
        "inherits": False,
        "changedBelow": 1,
        "children": [call],
    }
    counts = {"added": 0, "removed": 0, "changed": 1, "same": 1}
    return {
        "left": run(PLAN_ID),
        "right": run(other),
        "summary": {
            "first": {key: call[key] for key in ("kind", "name", "left", "right")},
            "models": [{"left": "gpt-5-mini", "right": "gpt-5", "calls": 2}],
            "costFactor": 2.5,
            "inherited": 0,
        },
        "counts": counts,
        "messagesCompared": True,
        "root": root,
    }


DIFF_EXAMPLE = _example()


router = APIRouter(prefix="/api/runs", tags=["runs"])

MOST_MESSAGE_BYTES = 64_000_000
"""If two runs together have more bytes of messages, their messages are not compared. Messages can
be far larger than the rest of a run, because each round repeats the messages of earlier rounds."""

_DIFF: dict[int | str, dict[str, Any]] = {200: {"content": content("RunDiff", DIFF_EXAMPLE)}}


@router.get(
    "/{a}/diff/{b}",
    response_model=None,
    responses={**_DIFF, **NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)},
)
async def diff_runs(
    a: Annotated[UUID, Path(description="The root plan of the left run.")],
    b: Annotated[UUID, Path(description="The root plan of the right run.")],
    request: Request,
    reader: Reader,
    conditional: Conditional,
) -> Response:
    """Compare two runs, and report how the right run differs from the left run.

    Each record is compared with its match in the other run. Siblings with the same name and
    arguments are matched first, then siblings with the same name, each time in their order.

    Texts are compared in full, even if the tree shows only previews. JSON texts are compared by
    value: white space and the order of keys make no difference. Numbers in JSON are equal only if
    they are written in the same way.
    """
    revisions = [await reader.read_revision(Kind.RUN, run_id) for run_id in (a, b)]
    headers = conditional.check(*revisions)
    diff = await until_client_leaves(request, compare(reader, a, b))
    written = await asyncio.to_thread(_written, diff)
    return Response(written, headers=headers, media_type="application/json")


_Read = tuple[TreeRows, dict[str, str]]


async def compare(reader: TraceReader, a: UUID, b: UUID) -> RunDiff:
    """Return the comparison of two runs."""
    sizes = [await reader.read_message_bytes(run_id) for run_id in (a, b)]
    has_messages = sum(sizes) <= MOST_MESSAGE_BYTES
    left, right = [await _read(reader, run_id, has_messages) for run_id in (a, b)]
    return await asyncio.to_thread(_compared, left, str(a), right, str(b), has_messages)


async def _read(reader: TraceReader, run_id: UUID, has_messages: bool) -> _Read:
    rows = await reader.read_tree(run_id, Payloads.COMPARED)
    messages = await reader.read_messages(run_id) if has_messages else {}
    return rows, {str(think_act_id): text for think_act_id, text in messages.items()}


def _compared(left: _Read, a: str, right: _Read, b: str, has_messages: bool) -> RunDiff:
    diff = diff_trees(
        build_tree(left[0], a),
        build_tree(right[0], b),
        left_messages=left[1],
        right_messages=right[1],
    )
    return {**diff, "messagesCompared": has_messages}


def _written(diff: RunDiff) -> bytes:
    root = tree_json(diff["root"], ["children"])
    rest = {name: value for name, value in diff.items() if name != "root"}
    return msgspec.json.encode(rest)[:-1] + b',"root":' + root + b"}"
