"""Plain Starlette routes for the most frequent requests.

FastAPI's routing and dependencies take up to 1 ms of processor time for each request. This is a
quarter of the time that it takes to return a tree of 100 records. The routes here bypass FastAPI
and call the functions of its routes directly. The FastAPI routes remain: they serve requests with
other query strings, and the OpenAPI document is made from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from api.dependencies import (
    Allowed,
    intake_of,
    metrics_of,
    parts_of,
    projection_for,
    reader_for,
    writer_for,
)
from api.freshness import freshness_of
from api.http.conditional import ConditionalRequest
from api.otlp import routes as otlp
from api.otlp.encodings import LOGS, TRACES, Received
from api.plans import routes as plans
from tracer.logs import bind_request_ids
from tracer.records import access


class FastRoute(Route):
    """A Starlette route that matches only requests with one of the given query strings."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        method: str,
        query_strings: Container[bytes],
    ) -> None:
        super().__init__(path, endpoint, include_in_schema=False)
        self.methods = {method}  # without HEAD, which Starlette adds to GET
        self._query_strings = query_strings

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match by path, method and query. Other requests go to the FastAPI route."""
        if scope["type"] == "http" and scope["query_string"] in self._query_strings:
            match, child_scope = super().matches(scope)
            if match is Match.FULL:
                # FastAPI names only its own routes in the scope. The log and the metrics need it.
                return match, {**child_scope, "route": self}
        return Match.NONE, {}


_RECORDING, _READING = Allowed(access.Scope.RECORD), Allowed(access.Scope.READ)

_PAYLOADS: dict[bytes, plans.ShownPayloads] = {b"": plans.DEFAULT_PAYLOADS} | {
    f"payloads={each}".encode(): each for each in get_args(plans.ShownPayloads)
}


async def _record(request: Request, received: Received) -> Response:
    caller = await _RECORDING(request)
    parts = await parts_of(request)
    intake, metrics = await intake_of(request), await metrics_of(request)
    writer = await writer_for(parts, caller)
    projection = await projection_for(parts, caller)
    return await otlp.record(request, received, writer, projection, intake, metrics)


async def _record_traces(request: Request) -> Response:
    return await _record(request, TRACES)


async def _record_logs(request: Request) -> Response:
    return await _record(request, LOGS)


async def _read_tree(request: Request) -> Response:
    plan_id = request.path_params["planId"]
    bind_request_ids(plan_id=plan_id)
    caller, parts = await _READING(request), await parts_of(request)
    reader = await reader_for(request, parts, caller)
    conditional = ConditionalRequest(request, Response(), request.headers.get("if-none-match"))
    payloads = _PAYLOADS[request.scope["query_string"]]
    fresh = freshness_of(request)
    return await plans.read_tree(plan_id, request, reader, conditional, fresh, payloads=payloads)


FAST_ROUTES = (
    FastRoute("/v1/traces", _record_traces, "POST", {b""}),
    FastRoute("/v1/logs", _record_logs, "POST", {b""}),
    FastRoute("/api/plans/{planId:uuid}/tree", _read_tree, "GET", _PAYLOADS),
)
