"""The route that compares two runs."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Path, Request, Response

from api.dependencies import Reader
from api.diff.schemas import DIFF_EXAMPLE
from api.http.conditional import NOT_MODIFIED, Conditional
from api.http.disconnection import until_client_leaves
from api.http.problems import documented
from api.plans.schemas import content
from api.plans.tree_json import tree_json
from tracer.lineage.diff import diff_trees
from tracer.lineage.tree import Payloads, TreeRows, build_tree
from tracer.records.record_classes import Kind
from tracer.store import TraceReader

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
    sizes = [await reader.read_message_bytes(run_id) for run_id in (a, b)]
    has_messages = sum(sizes) <= MOST_MESSAGE_BYTES
    left, right = [
        await until_client_leaves(request, _read(reader, run_id, has_messages)) for run_id in (a, b)
    ]
    written = await asyncio.to_thread(_written, left, str(a), right, str(b), has_messages)
    return Response(written, headers=headers, media_type="application/json")


_Read = tuple[TreeRows, dict[str, str]]


async def _read(reader: TraceReader, run_id: UUID, has_messages: bool) -> _Read:
    rows = await reader.read_tree(run_id, Payloads.COMPARED)
    messages = await reader.read_messages(run_id) if has_messages else {}
    return rows, {str(think_act_id): text for think_act_id, text in messages.items()}


def _written(left: _Read, a: str, right: _Read, b: str, has_messages: bool) -> bytes:
    diff = diff_trees(
        build_tree(left[0], a),
        build_tree(right[0], b),
        left_messages=left[1],
        right_messages=right[1],
    )
    root = tree_json(diff["root"], ["children"])
    rest = {name: value for name, value in diff.items() if name != "root"}
    rest["messagesCompared"] = has_messages
    return msgspec.json.encode(rest)[:-1] + b',"root":' + root + b"}"
