"""Read request bodies as streams, decompress them, and limit their size."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from fastapi import Request

from api.http.intake import Intake
from tracer.errors import BadRequest, TooBusy, TooLarge, UnknownFormat

MAX_BYTES = 32 * 2**20
"""The largest accepted body in bytes, after decompression."""

_PART_BYTES = 64 * 2**10
"""How many bytes are decompressed at once. The number is limited, because a body may expand a
thousandfold."""

_WINDOWS: Mapping[str, int | None] = {
    "": None,
    "identity": None,
    "gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}
"""zlib's window bits for each content encoding; None: not compressed."""


def media_type(request: Request) -> str:
    """Return the request's media type in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def admitted_body(
    request: Request, intake: Intake, max_bytes: int = MAX_BYTES
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the decompressed body as a stream of parts.

    Inside the `async with` block, the request counts as in progress.

    Args:
        request: The request, with its caller.
        intake: Limits the recording requests in progress.
        max_bytes: The largest accepted size. It applies to the compressed body, too.

    Raises:
        UnknownFormat: The `Content-Encoding` is not supported.
        TooBusy: The limits of `intake` are reached, or the body arrives too slowly.
        TooLarge: The body is larger than `max_bytes`.
        BadRequest: The body is damaged or ends early.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _WINDOWS:
        raise UnknownFormat("This Content-Encoding is not supported. Use gzip, deflate or none.")
    too_large = TooLarge(
        f"A body may have at most {max_bytes} bytes after decompression. Split it into several "
        "requests."
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise too_large
    async with intake.place(request.state.caller.project_id):
        received = _received(request, intake, max_bytes, too_large)
        window = _WINDOWS[encoding]
        yield (
            received
            if window is None
            else _limited(_unpacked(received, window), max_bytes, too_large)
        )


async def _limited(
    parts: AsyncIterator[bytes], max_bytes: int, too_large: TooLarge
) -> AsyncIterator[bytes]:
    size = 0
    async for part in parts:
        size += len(part)
        if size > max_bytes:
            raise too_large
        yield part


async def _received(
    request: Request, intake: Intake, max_bytes: int, too_large: TooLarge
) -> AsyncIterator[bytes]:
    size, waited, is_more = 0, 0.0, True
    try:
        while is_more:
            since = time.monotonic()
            # Not `request.stream()`, which waits once more at the end of each request.
            async with asyncio.timeout(intake.patience(size, waited)):
                message = await request.receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("The body ended early. Send the request again.")
            waited += time.monotonic() - since
            part, is_more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > max_bytes:
                raise too_large
            yield part
    except TimeoutError as error:
        raise TooBusy("The body arrived too slowly. Send the request again later.") from error


async def _unpacked(parts: AsyncIterator[bytes], window: int) -> AsyncIterator[bytes]:
    unpacker = zlib.decompressobj(window)
    try:
        async for part in parts:
            while part:
                if unpacker.eof:  # the next of several archives in a row
                    unpacker = zlib.decompressobj(window)
                for piece in _pieces(unpacker, part):
                    yield piece
                part = unpacker.unused_data
    except zlib.error as error:
        raise BadRequest("The body does not match its Content-Encoding.") from error
    if not unpacker.eof:
        raise BadRequest("The compressed body ends early. Send the request again.")


def _pieces(unpacker: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """Yield the decompressed data of `packed`, up to the end of the archive."""
    full = True
    while (packed or full) and not unpacker.eof:
        piece = unpacker.decompress(packed, _PART_BYTES)
        full = len(piece) == _PART_BYTES
        packed = unpacker.unconsumed_tail
        yield piece
