"""The straight ways: what is asked for most skips the routing of all other requests.

Programs that send each span by itself make more requests than all others together, and FastAPI's
routing and dependencies cost such a request more than decoding and masking its span; of reading a
tree of 100 records they are a quarter. The routes themselves stay what they are: what they depend
on is asked for here one by one, and anything that is not a plain request for them goes the usual
way.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from api.conditional import Known, NotModified, not_modified
from api.freshness import freshness_of
from api.parts import (
    Allowed,
    intake_of,
    metrics_of,
    parts_of,
    projection_for,
    reader_for,
    writer_for,
)
from api.problems import error_response
from api.routes import plans, traces
from tracer import access
from tracer.errors import TracerError
from tracer.lineage import Payloads
from tracer.logs import tell_lineage

Answer = Callable[[Request], Awaitable[Response]]


class StraightWays:
    """Answers what has a straight way, and hands on everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = _answer_to(scope) if scope["type"] == "http" else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await answer(Request(scope, receive, send))
        except TracerError as error:
            response = error_response(scope, error)
        except NotModified as error:
            response = not_modified(error)
        await response(scope, receive, send)


def _answer_to(scope: Scope) -> Answer | None:
    """Return what answers a request; None where that has no straight way."""
    method, path, query = scope["method"], scope["path"], scope["query_string"]
    if method == "POST" and path == _TRACES.path_format and not query:
        scope["route"] = _TRACES  # for the accounting
        return _record_traces
    if method == "GET" and query in _PAYLOADS and (found := _TREE_PATH.fullmatch(path)):
        scope["route"] = _TREE
        scope["path_params"] = {"planId": found[1]}
        return _read_tree
    return None


def _route_of(router: APIRouter, endpoint: Callable[..., object]) -> APIRoute:
    routes = [each for each in router.routes if isinstance(each, APIRoute)]
    return next(each for each in routes if each.endpoint is endpoint)


_RECORDING, _READING = Allowed(access.Scope.RECORD), Allowed(access.Scope.READ)

_TRACES = _route_of(traces.router, traces.record_traces)


async def _record_traces(request: Request) -> Response:
    caller = await _RECORDING(request)
    parts = await parts_of(request)
    writer = await writer_for(request, parts, caller)
    projection = await projection_for(parts, caller)
    intake, metrics = await intake_of(request), await metrics_of(request)
    return await traces.record_traces(request, writer, projection, intake, metrics)


_TREE = _route_of(plans.router, plans.read_tree)
_TREE_PATH = re.compile(
    re.escape(_TREE.path_format).replace(
        r"\{planId\}", "([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    )
)
_PAYLOADS = {b"": plans.DEFAULT_PAYLOADS} | {f"payloads={each}".encode(): each for each in Payloads}
"""How much is asked for, by the queries that ask for nothing else."""


async def _read_tree(request: Request) -> Response:
    plan_id = UUID(request.path_params["planId"])
    tell_lineage(plan_id=plan_id)
    caller = await _READING(request)
    reader = await reader_for(request, await parts_of(request), caller)
    known = Known(request, Response(), request.headers.get("if-none-match"))
    payloads = _PAYLOADS[request.scope["query_string"]]
    return await plans.read_tree(plan_id, reader, known, freshness_of(request), payloads=payloads)
