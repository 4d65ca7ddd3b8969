"""Answer with problem details if other middleware or a plain Starlette route raises an error."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.problems import error_response
from tracer.errors import TracerError


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
