"""Answers of many megabytes, sent in parts.

What a socket does not take at once, asyncio keeps, and moves as a whole after each part that it
takes: of a large tree given in one piece, that takes as long as building it.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PART_BYTES = 2**18
"""About what a socket on one machine takes at once."""


class JsonInParts(Response):
    """JSON that is written already."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, each part when the socket has room for it."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        body = bytes(self.body)
        last = max(0, (len(body) - 1) // PART_BYTES) * PART_BYTES
        for begin in range(0, last + 1, PART_BYTES):
            part = body[begin : begin + PART_BYTES]
            await send({"type": "http.response.body", "body": part, "more_body": begin < last})
