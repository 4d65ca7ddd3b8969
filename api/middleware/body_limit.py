"""A limit on the size of request bodies.

Starlette's `RequestBodyLimitMiddleware` is not used, because its response is plain text. Also, if
the announced size exceeds the limit, its response replaces all others, even 401.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracer.errors import TooLarge

MAX_BYTES = 4 * 2**20
"""The largest accepted body in bytes, before decompression."""

EXEMPT = frozenset({"/api/events", "/v1/traces", "/v1/logs", "/v1/metrics"})
"""Paths with larger limits, which count decompressed bytes (`api.http.request_bodies`)."""

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
