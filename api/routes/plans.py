"""Routes that read a plan, or the tree below a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic.alias_generators import to_camel

from api.conditional import NOT_MODIFIED, Conditional, ConditionalRequest, IfNoneMatch
from api.dependencies import (
    Allowed,
    FreshWanted,
    PlainRoute,
    Reader,
    naming_run,
    parts_of,
    reader_for,
)
from api.freshness import freshness_of
from api.problems import documented
from api.requests import PlanId, until_client_leaves
from api.schemas import (
    PLAN_ID,
    STEP_ID,
    SUB_PLAN_ID,
    THINK_ACT_ID,
    TOOL_CALL_ID,
    ParentActToolCall,
    PlanWithParent,
)
from tracer.errors import RecordNotFound
from tracer.lineage import Payloads, TreeRows, build_tree
from tracer.lineage.tree import (
    NODES,
    ROWS,
    MissingSpans,
    Opener,
    PlanNode,
    StepNode,
    ThinkActNode,
    ToolCallNode,
    TreeTotals,
)
from tracer.records import Kind
from tracer.records.access import Scope
from tracer.records.record_classes import RECORDS

# --- Schemas of the structs that the server encodes itself, for the OpenAPI document.

REF = "#/components/schemas/{name}"


def components(*types: Any) -> dict[str, Any]:
    """Return the schemas of types that the server encodes with msgspec, by name.

    Fields of records get the descriptions of `tracer.records.record_classes`.
    """
    _, schemas = msgspec.json.schema_components(types, ref_template=REF)
    for schema in schemas.values():
        properties = schema.get("properties", {})
        always = set(schema.get("required", ()))
        for name, field in properties.items():
            # Nodes leave fields with defaults out, except ids, which are never empty.
            if schema["title"] not in _NODES or field.get("default") == "":
                always |= {name} if "default" in field else set()
                field.pop("default", None)
        schema["required"] = [name for name in properties if name in always]
        kinds = properties.get("kind", {}).get("enum", ())
        if len(kinds) == 1:
            for name, info in RECORDS[Kind(kinds[0])].model_fields.items():
                if info.description and (field := properties.get(to_camel(name))) is not None:
                    field.setdefault("description", info.description)
    return schemas


_NODES = {each.__name__ for each in (*NODES.values(), *ROWS.values())}


def content(name: str, example: Any) -> dict[str, Any]:
    """Return the OpenAPI content of a JSON response whose schema is one of `components`."""
    return {"application/json": {"schema": {"$ref": REF.format(name=name)}, "example": example}}


def _example() -> Any:
    totals = TreeTotals(120, 40, 0.0004, tool_calls=1)
    started = datetime.fromisoformat("2026-11-21T22:21:52.462812Z")

    def node(node_class: type[Any], **fields: object) -> Any:
        """Return an example node. All texts are complete."""
        names = node_class.__struct_fields__
        sizes = {
            f"{name}_bytes": len(str(value))
            for name, value in fields.items()
            if f"{name}_bytes" in names
        }
        shown = {
            "status": "succeeded",
            "started_at": started,
            "finished_at": started + timedelta(seconds=1),
            "duration_ms": 1000.0,
            "position": 0,
            "own": totals,
            "cumulative": totals,
        }
        return node_class(**sizes | shown | fields)

    arguments = '{"patient": "p-1"}'
    sub_plan = node(
        PlanNode,
        plan_id=SUB_PLAN_ID,
        root_plan_id=PLAN_ID,
        title="Medication check",
        agent_name="planner",
        inferred=False,
        depth=1,
        parent_plan_id=PLAN_ID,
        tool_call_id=TOOL_CALL_ID,
        parent_act_tool_call=Opener(TOOL_CALL_ID, "medication_check", arguments, "succeeded"),
        user_request="Check the medication of p-1",
    )
    call = node(
        ToolCallNode,
        tool_call_id=TOOL_CALL_ID,
        step_id=STEP_ID,
        think_act_id=THINK_ACT_ID,
        provider_call_id="call_0",
        name="medication_check",
        tool_type="SUBPLAN",
        attempt=1,
        forged_arguments=[],
        inferred=False,
        arguments=arguments,
        result="No interaction.",
        sub_plan_count=1,
        sub_plans=[sub_plan],
    )
    think_act = node(
        ThinkActNode,
        think_act_id=THINK_ACT_ID,
        step_id=STEP_ID,
        requested_model="scripted",
        model="scripted",
        input_tokens=120,
        output_tokens=40,
        cost_usd=0.0004,
        inferred=False,
        thought="I look the medication up.",
        tool_calls=[call],
    )
    step = node(
        StepNode,
        step_id=STEP_ID,
        plan_id=PLAN_ID,
        agent_name="planner",
        request="Review the week",
        result="All is well.",
        think_acts=[think_act],
    )
    plan = node(
        PlanNode,
        plan_id=PLAN_ID,
        root_plan_id=PLAN_ID,
        title="Weekly health review",
        agent_name="planner",
        inferred=False,
        depth=0,
        agent_executions=[step],
        sub_plan_count=1,
        revision=42,
        behind=None,
        unplaced=[],
        user_request="How was my week?",
    )
    return msgspec.to_builtins(plan)


TREE_EXAMPLE = _example()


# --- Encode a tree of any depth as JSON.

_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")


def tree_json(
    top: PlanNode | Mapping[str, Any],
    children: Sequence[str] = _CHILDREN,
    encode: Callable[[object], bytes] = msgspec.json.encode,
) -> bytes:
    """Return a tree as JSON.

    Args:
        top: The root: a node, or a dictionary.
        children: The names of the fields that contain a node's lists of children.
        encode: Encodes a value as JSON; raises `RecursionError` if the value nests too deeply.
    """
    try:
        return encode(top)
    except RecursionError:
        return b"".join(_node_by_node(top, children, encode))


def _node_by_node(
    top: Any, children: Sequence[str], encode: Callable[[object], bytes]
) -> Iterator[bytes]:
    pending: list[Any] = [top]
    while pending:
        item = pending.pop()
        if isinstance(item, bytes):
            yield item
            continue
        fields = _fields(item)
        below = {name: fields.pop(name) for name in children if name in fields}
        yield encode(fields)[:-1]
        pending.append(b"}")
        while below:
            name, nodes = below.popitem()
            pending.append(b"]")
            for index in range(len(nodes) - 1, -1, -1):
                pending.append(nodes[index])
                if index:
                    pending.append(b",")
            pending.append(f',"{name}":['.encode())


_FIELDS = {each: msgspec.structs.fields(each) for each in NODES.values()}


def _fields(item: Any) -> dict[str, Any]:
    """Return a node's fields by their JSON names, without converting their values."""
    if isinstance(item, dict):
        return item.copy()
    fields = {"kind": item.kind}
    for field in _FIELDS[type(item)]:
        value = getattr(item, field.name)
        is_empty_list = field.default_factory is list and not value
        if value is not field.default and value is not msgspec.UNSET and not is_empty_list:
            fields[field.encode_name] = value
    return fields


router = APIRouter(prefix="/api/plans", tags=["plans"])

ShownPayloads = Literal[
    Payloads.NONE, Payloads.PREVIEW, Payloads.EXCERPT, Payloads.FULL, Payloads.DIGEST
]
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
            description="The form of long strings: `preview` is the first 2 kB, `excerpt` the "
            "same, but only 128 bytes of the results and state changes of tool calls, `digest` is "
            "the SHA-256."
        ),
    ] = Payloads.PREVIEW,
    parts: Annotated[
        Literal["all", "own"],
        Query(
            description="At the first run of a piece of work: whether the runs that continue it "
            "are shown, too, each below the call that it continues."
        ),
    ] = "all",
    fresh: FreshWanted = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a plan and everything below it as a tree.

    Records leave out the fields whose values are their defaults, such as null and empty lists.
    """
    caller = request.state.caller
    reader = await reader_for(request, await parts_of(request), caller, fresh)
    conditional = ConditionalRequest(request, Response(), if_none_match)
    if conditional.is_anything:
        with suppress(RecordNotFound):  # a run whose root plan has no record
            conditional.check(await reader.read_revision(Kind.PLAN, plan_id))
    rows = await until_client_leaves(
        request, reader.read_tree(plan_id, payloads, all_parts=parts == "all")
    )
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
