"""Accounting: each request has an id, one line in the log, its place in the metrics, and a span.

It is the outermost part, so that what the gate turns away is told of, too. Nothing that a client
may choose freely is told: no path, no query, no body; ids alone, and templates of paths.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from api.own_spans import OwnSpans, end_request
from api.viewer import is_of_the_viewer
from tracer.access import Caller
from tracer.ids import new_id
from tracer.logs import get_logger, request_bound
from tracer.redaction import standard_redaction

log = get_logger(__name__)

NO_ROUTE = "none"
"""The route of what was turned away before it had one, or of a path that there is not."""

VIEWER = "viewer"
"""The route of all pages and files of the viewer."""

DOCUMENT = "/openapi.json"

OTHER = "_OTHER"
"""Any method besides `METHODS`, as OpenTelemetry calls it."""

METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)

_ACCOUNT = "tracer.account"

_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-.*")


@dataclass(slots=True)
class Account:
    """What is known of a request so far."""

    request_id: str
    status: int = 0
    """0: the answer has not begun."""
    received: int = 0
    sent: int = 0
    is_stream: bool = False
    problem: str | None = None
    """The code of the problem that it is answered with."""


def account_of(scope: Scope) -> Account | None:
    """Return the account of a request; None where nobody keeps one."""
    account = scope.get(_ACCOUNT)
    return account if isinstance(account, Account) else None


def note_problem(scope: Scope, code: str) -> None:
    """Take note of the code of the problem that a request is answered with."""
    account = account_of(scope)
    if account is not None:
        account.problem = code


class Accounting:
    """Keeps the account of each request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, spans: OwnSpans) -> None:
        self._app = app
        self._metrics = metrics
        self._spans = spans
        self._in_progress = metrics.requests_in_progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and tell of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        account = scope[_ACCOUNT] = Account(request_id(scope["headers"]))
        header = (b"x-request-id", account.request_id.encode())

        async def received() -> Message:
            message = await receive()
            account.received += len(message.get("body", b""))
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                account.status = message["status"]
                account.is_stream = _is_stream(message["headers"])
                message["headers"] = [*message["headers"], header]
            else:
                account.sent += len(message.get("body", b""))
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else OTHER
        scheme = scope.get("scheme", "http")  # ASGI's default
        begin = time.perf_counter()
        self._in_progress.inc()
        with (
            request_bound(account.request_id),
            self._spans.of_request(method, scheme, scope["headers"]) as span,
        ):
            try:
                await self._app(scope, received, sent)
            except Exception:
                if not account.status:
                    # `api.problems` answers so, and it stands outside of this.
                    account.status = HTTPStatus.INTERNAL_SERVER_ERROR
                    account.problem = "internal_error"
                raise
            finally:
                self._in_progress.dec()
                route = _route(scope)
                self._tell(scope, account, method, route, time.perf_counter() - begin)
                if span is not None:
                    end_request(span, method, route, account.status)

    def _tell(
        self, scope: Scope, account: Account, method: str, route: str | None, seconds: float
    ) -> None:
        self._metrics.note_request(
            (method, route or NO_ROUTE, str(account.status)),
            None if account.is_stream else seconds,
            account.received,
            account.problem,
        )
        told: dict[str, object] = {} if account.problem is None else {"code": account.problem}
        caller = scope.get("state", {}).get("caller")
        if isinstance(caller, Caller) and caller.key_id is not None:
            told["key_id"] = str(caller.key_id)
        log.info(
            "request",
            method=method,
            route=route or NO_ROUTE,
            status=account.status,
            duration_ms=round(seconds * 1_000, 1),
            received_bytes=account.received,
            sent_bytes=account.sent,
            client=(scope.get("client") or (None,))[0],
            **told,
        )


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id of a request: what its client calls it, its trace, or else a new one."""
    found = dict(headers)
    named = found.get(b"x-request-id")
    if named is not None and _ID.fullmatch(named):
        name = named.decode()
        if standard_redaction().value(name) == name:  # it is logged
            return name
    trace = _TRACEPARENT.fullmatch(found.get(b"traceparent", b""))
    return trace[1].decode() if trace else new_id().hex


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in headers
    )


def _route(scope: Scope) -> str | None:
    """Return the template of the path that was asked for; None where there is none."""
    route, path = scope.get("route"), scope["path"]
    if isinstance(route, APIRoute):
        return route.path_format
    if is_of_the_viewer(path):
        return VIEWER
    return DOCUMENT if path == DOCUMENT else None
