"""Routes that read a plan, or the tree below a plan."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from api.dependencies import Allowed, FreshWanted, Reader, parts_of, reader_for
from api.freshness import freshness_of
from api.http.conditional import NOT_MODIFIED, Conditional, ConditionalRequest, IfNoneMatch
from api.http.disconnection import until_client_leaves
from api.http.parameters import PlanId
from api.http.problems import documented
from api.moved_records import naming_run
from api.plain_routes import PlainRoute
from api.plans.schemas import TREE_EXAMPLE, content
from api.plans.tree_json import tree_json
from api.schemas import FollowedToolCall, ParentActToolCall, PlanWithParent
from tracer.errors import RecordNotFound
from tracer.lineage.nodes import MissingSpans
from tracer.lineage.tree import Payloads, TreeRows, build_tree
from tracer.records.access import Scope
from tracer.records.record_classes import Kind

router = APIRouter(prefix="/api/plans", tags=["plans"])

ShownPayloads = Literal[Payloads.NONE, Payloads.PREVIEW, Payloads.FULL, Payloads.DIGEST]
"""The values of `payloads` that clients can set. Only the comparison of runs uses `COMPARED`."""

_TREE: dict[int | str, dict[str, Any]] = {200: {"content": content("PlanNode", TREE_EXAMPLE)}}


@router.get("/{planId}", responses={**NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)})
async def read_plan(plan_id: PlanId, reader: Reader, conditional: Conditional) -> PlanWithParent:
    """Read one plan, with a summary of the tool call that opened it."""
    async with naming_run(reader, plan_id):
        conditional.check(await reader.read_revision(Kind.PLAN, plan_id))
        stored_plan = await reader.read_plan(plan_id)
    plan = PlanWithParent.model_validate(stored_plan.plan)
    if stored_plan.opener is not None:
        plan.parent_act_tool_call = ParentActToolCall.model_validate(stored_plan.opener)
    if stored_plan.followed is not None:
        plan.followed_tool_call = FollowedToolCall.model_validate(stored_plan.followed)
    return plan


async def read_tree(
    request: Request,
    plan_id: PlanId,
    depth: Annotated[
        int | None,
        Query(ge=1, le=2**31 - 1, description="How many levels of plans; 1 is only this plan."),
    ] = None,
    payloads: Annotated[
        ShownPayloads,
        Query(
            description="The form of long strings: `preview` is the first 2 kB, `digest` is the "
            "SHA-256."
        ),
    ] = Payloads.PREVIEW,
    fresh: FreshWanted = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a plan and everything below it as a tree."""
    caller = request.state.caller
    reader = await reader_for(request, await parts_of(request), caller, fresh)
    conditional = ConditionalRequest(request, Response(), if_none_match)
    if conditional.is_anything:
        with suppress(RecordNotFound):  # a run whose root plan has no record
            conditional.check(await reader.read_revision(Kind.PLAN, plan_id))
    rows = await until_client_leaves(request, reader.read_tree(plan_id, payloads))
    headers = conditional.check(rows.revision)
    behind = freshness_of(request).behind
    missing = None if behind is None else MissingSpans(behind.spans, behind.since)
    body = await asyncio.to_thread(_tree_json, rows, str(plan_id), depth, missing)
    return Response(body, headers=headers, media_type="application/json")


TREE_ROUTE = PlainRoute(
    "GET",
    f"{router.prefix}/{{planId}}/tree",
    read_tree,
    Allowed(Scope.READ),
    {**_TREE, **NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)},
    tags=router.tags,
)


SEED_PATH = "/api/executor/details/{plan_id}"
"""The address of a plan's tree in the document that Tracer grew from."""


async def redirect_to_tree(request: Request) -> Response:
    """Redirect from `SEED_PATH` to the tree of the plan."""
    path = f"{router.prefix}/{quote(request.path_params['plan_id'], safe='')}/tree"
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(path + query, HTTPStatus.PERMANENT_REDIRECT)


def _tree_json(
    rows: TreeRows, plan_id: str, depth: int | None, behind: MissingSpans | None
) -> bytes:
    top = build_tree(rows, plan_id, depth)
    top.behind = behind
    return tree_json(top)
