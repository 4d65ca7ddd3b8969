"""Answer a request with 304 if the client already has the response."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.conditional import NotModified


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
