"""Add headers to every response: headers for security, and the version of the event protocol."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracer.records.events import PROTOCOL_HEADER, PROTOCOL_VERSION

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


class SecurityHeaders:
    """Middleware that adds the default headers in `HEADERS`, if a response does not have them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = [each for each in _RAW_HEADERS if each[0] not in present]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        await self._app(scope, receive, send_with_headers)
