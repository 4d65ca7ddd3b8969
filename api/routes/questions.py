"""Routes that answer questions about runs, as JSON or as text, and the same over MCP."""

# No `from __future__ import annotations`: FastAPI reads the classes of questions from annotations.

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Protocol
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query, Request, Response
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from api.dependencies import Allowed, PlainRoute, Reader, parts_of, reader_for
from api.middleware.authentication import check_site
from api.problems import documented
from api.requests import media_type, until_client_leaves
from api.routes.diff import compare
from api.routes.plans import REF
from tracer import questions
from tracer.clock import utc_now
from tracer.errors import AmbiguousReference, RecordNotFound, UnknownFormat
from tracer.lineage import Payloads, build_tree
from tracer.lineage.tree import PlanNode
from tracer.questions import QUESTIONS, UNTRUSTED, Asked, rows
from tracer.questions import asked as ask
from tracer.questions.mcp_server import Context, mcp_server
from tracer.records import Kind, access
from tracer.records.pages import TimeRange
from tracer.store import RecordMatch, RunFilter, TraceReader


class Answer(Protocol):
    """An answer: a value that msgspec encodes."""

    def text(self) -> str:
        """Return it as text."""


async def find_one(reader: TraceReader, reference: str) -> RecordMatch:
    """Return the record that a reference means.

    Raises:
        RecordNotFound: No record matches.
        AmbiguousReference: Several records match.
    """
    matches = await reader.find_records(reference)
    if not matches:
        raise RecordNotFound("run or record", reference)
    if len(matches) > 1:
        raise AmbiguousReference(reference, [(each.kind, each.id) for each in matches])
    return matches[0]


async def _tree(reader: TraceReader, run_id: UUID) -> PlanNode:
    found = await reader.read_tree(run_id, Payloads.PREVIEW)
    return await asyncio.to_thread(build_tree, found, str(run_id))


async def _show(reader: TraceReader, asked: ask.Show) -> questions.Outline:
    found = await find_one(reader, asked.run)
    tree = await _tree(reader, found.root_plan_id)
    return await asyncio.to_thread(questions.outline, tree, asked.budget, str(found.id))


async def _why(reader: TraceReader, asked: ask.Why) -> questions.Why:
    if asked.run is None:
        page = await reader.list_runs(RunFilter(status="failed"), 1, None)
        if not page.items:
            message = "No run has failed. List the runs with `list`, and name one of them."
            raise RecordNotFound("run", None, message)
        run_id = record_id = page.items[0].root_plan_id
    else:
        found = await find_one(reader, asked.run)
        run_id, record_id = found.root_plan_id, found.id
    tree = await _tree(reader, run_id)
    target = await asyncio.to_thread(questions.target_of, tree, str(record_id))
    origin, round_id = target.origin, target.round_id
    # The tree has only the beginning of a long error.
    key = UUID(questions.id_of(origin))
    record = await reader.read_record(origin.kind, key) if origin.error else None
    think_act = await reader.read_think_act(UUID(round_id)) if round_id else None
    messages = think_act.messages if think_act else None
    return await asyncio.to_thread(questions.explain, target, asked.budget, record, messages)


async def _list(reader: TraceReader, asked: ask.List) -> rows.Runs:
    period = _period(asked)
    same = asked.model_dump(exclude={"budget", "user", "since", "until", "sort", "limit"})
    wanted = RunFilter(subject=asked.user, since=period.since, until=period.until, **same)
    page = await reader.list_runs(wanted, asked.limit, None, asked.sort)
    return rows.runs(page.items, page.next_cursor, asked.budget)


async def _record(reader: TraceReader, asked: ask.Record) -> rows.RecordAnswer:
    found = await find_one(reader, asked.id)
    kind = Kind.PLAN if found.kind is Kind.RUN else found.kind
    record = await reader.read_record(kind, found.id)
    return await asyncio.to_thread(
        rows.record, record, kind, asked.pointer, asked.start, asked.length, asked.budget
    )


async def _diff(reader: TraceReader, asked: ask.Diff) -> rows.Differences:
    left, right = [(await find_one(reader, each)).root_plan_id for each in (asked.a, asked.b)]
    compared = await compare(reader, left, right)
    return await asyncio.to_thread(rows.differences, compared, asked.budget)


async def _stats(reader: TraceReader, asked: ask.Stats) -> rows.StatsAnswer:
    period = _period(asked)
    if asked.by == "tool":
        tools = await reader.read_tool_stats(period)
        return rows.stats(asked.by, period.since, tools.items, asked.budget)
    spend = await reader.read_spend(period, asked.by)
    return rows.stats(asked.by, period.since, spend, asked.budget)


def _period(asked: ask.List | ask.Stats) -> TimeRange:
    now = utc_now()
    return TimeRange(ask.moment_of(asked.since, now), ask.moment_of(asked.until, now))


_ANSWERS: dict[type[Asked], Callable[[TraceReader, Any], Coroutine[Any, Any, Answer]]] = {
    ask.Why: _why,
    ask.List: _list,
    ask.Show: _show,
    ask.Record: _record,
    ask.Diff: _diff,
    ask.Stats: _stats,
}

ANSWER_TYPES = {question: answer.__annotations__["return"] for question, answer in _ANSWERS.items()}
"""The class of the answer to each question."""

router = APIRouter(prefix="/api/questions", tags=["questions"])


def _endpoint(question: type[Asked]) -> Callable[..., Awaitable[Response]]:
    async def endpoint(
        request: Request,
        reader: Reader,
        asked: Annotated[question, Query()],  # type: ignore[valid-type]
    ) -> Response:
        answer = await until_client_leaves(request, _ANSWERS[question](reader, asked))
        headers = {"Vary": "Accept"}
        if "text/plain" in request.headers.get("accept", ""):
            body = UNTRUSTED + answer.text()
            return Response(body, headers=headers, media_type="text/plain; charset=utf-8")
        return Response(msgspec.json.encode(answer), headers=headers, media_type="application/json")

    return endpoint


def _answered(answer: type[Answer]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entry of an answer."""
    as_json = {"schema": {"$ref": REF.format(name=answer.__name__)}}
    as_text = {"schema": {"type": "string"}}
    return {200: {"content": {"application/json": as_json, "text/plain": as_text}}}


for _name, _question in QUESTIONS.items():
    router.add_api_route(
        f"/{_name}",
        _endpoint(_question),
        name=f"ask_{_name}",
        description=questions.description(_question),
        responses=_answered(ANSWER_TYPES[_question])
        | documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )


# --- The same questions over MCP: streamable HTTP, stateless, with JSON answers.


async def _answer_over_mcp(name: str, asked: Asked, context: Context) -> str:
    request = context.request
    assert isinstance(request, Request)
    reader = await reader_for(request, await parts_of(request), request.state.caller)
    return UNTRUSTED + (await _ANSWERS[type(asked)](reader, asked)).text()


MCP = mcp_server(_answer_over_mcp, version("tracer-lineage"))


class _McpResponse(Response):
    """A response that the library `mcp` writes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message. No state remains, so that any server answers the next one."""
        manager = StreamableHTTPSessionManager(MCP, stateless=True, json_response=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


async def call_mcp(request: Request) -> Response:
    """Answer a message of the Model Context Protocol (MCP)."""
    check_site(request)
    # The library's own answer to this is no JSON.
    if media_type(request) != "application/json":
        raise UnknownFormat("Send a message of MCP with the Content-Type application/json.")
    return _McpResponse()


MCP_ROUTE = PlainRoute(
    "POST",
    "/mcp",
    call_mcp,
    Allowed(access.Scope.READ),
    documented(HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    tags=router.tags,
)
