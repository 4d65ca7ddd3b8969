"""Give each request an id, a line in the log, and metrics.

This is the outermost middleware, so that it also covers rejected requests. It reports nothing that
a client may choose freely: no path, query or body, only ids and templates of paths.

`asgi-correlation-id` is not suitable, because it cannot use the trace id of a `traceparent`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from http import HTTPStatus

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from api.problems import ENTRY, LogEntry
from api.viewer import is_of_the_viewer
from tracer.logs import get_logger, request_bound
from tracer.records import new_id
from tracer.records.access import Caller
from tracer.redaction import standard_redaction

log = get_logger(__name__)

NO_ROUTE = "none"
"""The route of unknown paths and of requests that were rejected before routing."""

VIEWER = "viewer"
"""The route of all pages and files of the viewer."""

DOCUMENT = "/openapi.json"

PROBES = frozenset({"/healthz", "/readyz"})
"""Routes that orchestrators call every few seconds. Their responses are logged only if the status
is not 200."""

METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
OTHER_METHOD = "_OTHER"
"""The label of methods that are not in `METHODS`, as in OpenTelemetry's semantic conventions."""

_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-.*")


class RequestLog:
    """Middleware that logs and counts requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = scope[ENTRY] = LogEntry(request_id(scope["headers"]))
        header = (b"x-request-id", entry.request_id.encode())

        async def counted_receive() -> Message:
            message = await receive()
            entry.received += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry.status = message["status"]
                entry.is_stream = _is_stream(message["headers"])
                message["headers"] = [*message["headers"], header]
            else:
                entry.sent += len(message.get("body", b""))
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
        begin = time.perf_counter()
        with (
            request_bound(entry.request_id),
            self._metrics.requests_in_progress.track_inprogress(),
        ):
            try:
                await self._app(scope, counted_receive, counted_send)
            except Exception:
                if not entry.status:  # Starlette's outermost middleware answers it
                    entry.status = HTTPStatus.INTERNAL_SERVER_ERROR
                    entry.problem = "internal_error"
                raise
            finally:
                route = _route(scope)
                caller = scope.get("state", {}).get("caller")
                client = (scope.get("client") or (None,))[0]
                seconds = time.perf_counter() - begin
                log_request(self._metrics, entry, (method, route), seconds, caller, client)


def log_request(
    metrics: Metrics,
    entry: LogEntry,
    target: tuple[str, str | None],
    seconds: float,
    caller: object,
    client: str | None,
) -> None:
    """Count an answered request, and write its line in the log.

    Args:
        metrics: The server's counters.
        entry: The facts about the request.
        target: The method, and the template of the path; None instead of it if no route matched.
        seconds: The duration of the response.
        caller: The authenticated `Caller`, if there is one.
        client: The client's address, if it is known.
    """
    method, route = target
    metrics.note_request(
        (method, route or NO_ROUTE, str(entry.status)),
        None if entry.is_stream else seconds,
        entry.problem,
    )
    if route in PROBES and entry.status == HTTPStatus.OK:
        return
    optional: dict[str, object] = {} if entry.problem is None else {"code": entry.problem}
    if isinstance(caller, Caller) and caller.key_id is not None:
        optional["key_id"] = str(caller.key_id)
    log.info(
        "request",
        method=method,
        route=route or NO_ROUTE,
        status=entry.status,
        duration_ms=round(seconds * 1_000, 1),
        received_bytes=entry.received,
        sent_bytes=entry.sent,
        client=client,
        **optional,
    )


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id of a request: its `X-Request-Id`, else its trace id, else a new id."""
    headers_by_name = dict(headers)
    named = headers_by_name.get(b"x-request-id")
    if named is not None and _ID.fullmatch(named):
        name = named.decode()
        if standard_redaction().value(name) == name:  # a secret must not be logged
            return name
    trace = _TRACEPARENT.fullmatch(headers_by_name.get(b"traceparent", b""))
    return trace[1].decode() if trace else new_id().hex


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in headers
    )


def _route(scope: Scope) -> str | None:
    """Return the template of the request's path; None if no route matched."""
    route, path = scope.get("route"), scope["path"]
    if isinstance(route, Route):
        return route.path_format
    if is_of_the_viewer(path):
        return VIEWER
    return DOCUMENT if path == DOCUMENT else None
