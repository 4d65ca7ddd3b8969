"""Middleware for responses: size limits, compression, errors, ETags, pages, and headers."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from http import HTTPStatus
from typing import Any

from isal import isal_zlib
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware, GZipResponder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import freshness
from api.conditional import NotModified
from api.middleware.authentication import is_otlp
from api.problems import error_response
from api.viewer import html_page, is_of_the_viewer
from tracer.errors import TooLarge, TracerError
from tracer.records.events import PROTOCOL_HEADER, PROTOCOL_VERSION

# --- A limit on the size of request bodies.
#
# Starlette's `RequestBodyLimitMiddleware` is not used, because its response is plain text. Also, if
# the announced size exceeds the limit, its response replaces all others, even 401.

MAX_BYTES = 4 * 2**20
"""The largest accepted body in bytes, before decompression."""

EXEMPT = frozenset({"/api/events", "/v1/traces", "/v1/logs", "/v1/metrics"})
"""Paths with larger limits, which count decompressed bytes (`api.requests`)."""

_TOO_LARGE = TooLarge(f"A body may have {MAX_BYTES} bytes here.")


class BodyLimit:
    """Middleware that rejects bodies above `MAX_BYTES` with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            TooLarge: The announced size exceeds the limit.
        """
        if scope["type"] != "http" or scope["path"] in EXEMPT:
            await self._app(scope, receive, send)
            return
        announced = Request(scope).headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > MAX_BYTES:
            raise _TOO_LARGE
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BYTES:
                # FastAPI turns other exceptions while it reads a body into a 400.
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(_TOO_LARGE))
            return message

        await self._app(scope, limited, send)


# --- Compress answers with gzip.

MIN_COMPRESSED_BYTES = 1_400
"""A smaller body fits in one packet even without compression."""

_LEVEL = 1
"""ISA-L's level for a ratio like that of zlib's level 1."""


class Compression(GZipMiddleware):
    """Starlette's middleware with ISA-L, which takes a fifth of zlib's time for the same ratio.

    A tree of 10,000 records has 18 MB. A client that decompresses it waits for the compression.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, minimum_size=MIN_COMPRESSED_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Compress the response if the client accepts gzip."""
        if scope["type"] == "http" and "gzip" in Headers(scope=scope).get("Accept-Encoding", ""):
            await _Responder(self.app, self.minimum_size)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _Responder(GZipResponder):
    _stream: Any = None

    @property
    def compressor(self) -> Any:
        if self._stream is None:
            self._stream = isal_zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        return self._stream


# --- Answer with problem details if other middleware or a plain Starlette route raises an error.


class ErrorResponses:
    """Middleware that converts a `TracerError` from inner middleware or a route to a response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            await self._app(scope, receive, send)
        except TracerError as error:
            await error_response(scope, error)(scope, receive, send)


# --- Answer a request with 304 if the client already has the response.


class ETags:
    """Middleware that answers 304 if a route raises `NotModified`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            await self._app(scope, receive, send)
        except NotModified as error:
            response = Response(status_code=HTTPStatus.NOT_MODIFIED, headers=error.headers)
            await response(scope, receive, send)


# --- Answer a browser with the viewer's page if no route has the address.


class UnknownPages:
    """Middleware that answers a browser with the viewer's page if no route has the address.

    The page shows that the address does not exist, and leads to the list of runs. It contains no
    project data, so it needs no caller. Requests of other programs and addresses of the API get
    problem details.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if _is_unknown(scope):
            await html_page(status=HTTPStatus.NOT_FOUND)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_unknown(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path = scope["path"]
    if is_of_the_viewer(path) or f"{path}/".startswith(("/api/", "/v1/")):
        return False
    if "text/html" not in Headers(scope=scope).get("accept", ""):
        return False
    return all(each.matches(scope)[0] is Match.NONE for each in scope["app"].router.routes)


# --- Let pages of other sites send OTLP (Fetch standard, "CORS protocol").


class OtlpOrigins:
    """Middleware that answers the preflight requests of browsers for the OTLP routes.

    It precedes the authentication, because preflight requests contain no key.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._shared = CORSMiddleware(
            app,
            allow_origins=sorted(origins),
            allow_methods=["POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_shared = scope["type"] == "http" and is_otlp(scope)
        await (self._shared if is_shared else self._app)(scope, receive, send)


# --- Add headers to every response: headers for security, the version of the event protocol, and
# how many accepted spans the records lack.

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    PROTOCOL_HEADER: str(PROTOCOL_VERSION),
}
"""The default headers. Responses have no CORS headers, so that pages of other origins cannot read
the responses."""

_RAW_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


class ResponseHeaders:
    """Middleware that adds the default headers in `HEADERS`, if a response does not have them.

    If the records that the request read lack accepted spans, a header states it (`api.freshness`).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = [each for each in _RAW_HEADERS if each[0] not in present]
                if (read := scope.get("state", {}).get(freshness.STATE)) is not None:
                    missing += read.headers
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        await self._app(scope, receive, send_with_headers)
