"""Answers of many megabytes, sent in parts that are written meanwhile.

What a socket does not take at once, asyncio keeps, and moves as a whole after each part that it
takes: of a large tree given in one piece, that takes as long as building it. And to write one in
one piece holds up whatever else the server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PART_BYTES = 2**18
"""About what a socket on one machine takes at once."""


class JsonInParts(Response):
    """JSON in pieces. Its size is not announced, since nobody knows it before the end."""

    media_type = "application/json"

    def __init__(self, pieces: Iterable[bytes], headers: Mapping[str, str] | None = None) -> None:
        """Say what to send.

        Args:
            pieces: What makes up the JSON, of any sizes. Each is asked for when it is its turn.
            headers: The answer's headers besides the media type.
        """
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, each part when the socket has room for it."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        for number, part in enumerate(in_parts(self._pieces)):
            if number:  # sending waits for nobody while the socket has room
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def in_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what the pieces make up, in parts that are as large as a socket takes."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= PART_BYTES:
            whole = b"".join(gathered)
            size %= PART_BYTES
            gathered = [whole[len(whole) - size :]]
            for begin in range(0, len(whole) - size, PART_BYTES):
                yield whole[begin : begin + PART_BYTES]
    yield b"".join(gathered)
