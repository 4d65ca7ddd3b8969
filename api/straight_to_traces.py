"""The way straight to the traces: what records spans skips the routing of all other requests.

Programs that send each span by itself make more requests than all others together, and FastAPI's
routing and dependencies cost such a request more than decoding and masking its span. The route
itself stays what it is (`api.routes.traces`): what it depends on is asked for here one by one, and
anything that is not a plain request for it goes the usual way.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from api.parts import Allowed, intake_of, metrics_of, parts_of, writer_for
from api.problems import error_response
from api.routes import traces
from tracer import access
from tracer.errors import TracerError

_ROUTE = next(each for each in traces.router.routes if isinstance(each, APIRoute))
_RECORDING = Allowed(access.Scope.RECORD)


class StraightToTraces:
    """Answers what records spans, and hands on everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_straight = (
            scope["type"] == "http"
            and scope["path"] == _ROUTE.path_format
            and scope["method"] == "POST"
            and not scope["query_string"]  # which is refused
        )
        if not is_straight:
            await self._app(scope, receive, send)
            return
        scope["route"] = _ROUTE  # for the accounting
        request = Request(scope, receive, send)
        try:
            caller = await _RECORDING(request)
            writer = await writer_for(request, await parts_of(request), caller)
            intake, metrics = await intake_of(request), await metrics_of(request)
            response = await traces.record_traces(request, writer, intake, metrics)
        except TracerError as error:
            response = error_response(scope, error)
        await response(scope, receive, send)
