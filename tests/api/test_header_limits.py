"""Limits of the size and the duration of request headers, over a real connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.http.header_limits import MAX_HEADER_BYTES, HeaderLimits
from tests.servers import tracer_server
from tests.tools.short_times import long_enough

GET = b"GET / HTTP/1.1\r\nHost: tracer\r\n"
LONG_SECONDS = 600.0
SHORT_SECONDS = 0.05


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the size of the body; under `/stream`, never end."""
    request = Request(scope, receive)
    if request.url.path == "/stream":

        async def forever() -> AsyncIterator[str]:
            yield "begun"
            await asyncio.Event().wait()

        await StreamingResponse(forever())(scope, receive, send)
        return
    await PlainTextResponse(str(len(await request.body())))(scope, receive, send)


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self) -> tuple[int, bytes]:
        """Return the status and the body of the next response."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length"))
        return int(head.split()[1]), await self.reader.readexactly(length)


@asynccontextmanager
async def connected(header_seconds: float = LONG_SECONDS) -> AsyncIterator[Connection]:
    """Connect to a server with the limits."""
    protocol: Any = partial(HeaderLimits, header_seconds=header_seconds)
    config = uvicorn.Config(application, http=protocol, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            async with asyncio.timeout(60):
                yield Connection(reader, writer)
        finally:
            writer.close()
            server.should_exit = server.force_exit = True
            await serving


def header(size: int) -> bytes:
    return b"X-Header: " + b"x" * (size - len(b"X-Header: \r\n")) + b"\r\n"


LARGE = {
    "one_header": [GET, header(MAX_HEADER_BYTES), b"\r\n"],
    "many_headers": [GET, header(1024) * 64, b"\r\n"],
    "url": [b"GET /" + b"x" * MAX_HEADER_BYTES + b" HTTP/1.1\r\nHost: tracer\r\n\r\n"],
    "header_name": [GET, b"x" * MAX_HEADER_BYTES, b": x\r\n\r\n"],
    "header_that_does_not_end": [GET, b"X-Header: ", *[b"x" * 2**16] * 100],
    "headers_that_do_not_end": [GET, *[header(2**12) * 16] * 100],
    "blank_lines": [b"\r\n" * 2**16, b"\r\n" * 2**16],
}


@pytest.mark.parametrize("parts", LARGE.values(), ids=LARGE.keys())
async def test_headers_above_64_kib_get_431(parts: list[bytes]) -> None:
    async with connected() as connection:
        for part in parts:
            await connection.send(part)
        status, body = await connection.response()
        rest = await connection.reader.read()

    assert (status, rest) == (431, b"")
    assert b'"code":"headers_too_large"' in body


async def test_headers_up_to_64_kib_are_accepted_for_each_request() -> None:
    most = header(MAX_HEADER_BYTES - len(GET) - 1)
    async with connected() as connection:
        for _ in range(3):
            await connection.send(GET + most + b"\r\n")
            assert await connection.response() == (200, b"0")


async def test_size_of_the_body_does_not_count_towards_the_header_limit() -> None:
    body = b"x" * 10 * MAX_HEADER_BYTES
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    async with connected() as connection:
        await connection.send(GET + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert await connection.response() == (200, str(len(body)).encode())
        await connection.send(
            GET + b"Transfer-Encoding: chunked\r\n\r\n" + 3 * chunk + b"0\r\n\r\n"
        )
        assert await connection.response() == (200, str(3 * len(body)).encode())


async def test_large_trailers_close_the_connection() -> None:
    async with connected() as connection:

        async def send_trailers() -> None:
            for _ in range(100):
                await connection.send(header(2**16)[:-2])
            await connection.response()

        await connection.send(GET + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await send_trailers()


async def test_slow_headers_get_408() -> None:
    async with connected(SHORT_SECONDS) as connection:
        await connection.send(GET)
        status, body = await connection.response()
        rest = await connection.reader.read()

    assert (status, rest) == (408, b"")
    assert b'"code":"headers_too_slow"' in body


async def test_slow_headers_of_a_later_request_get_408() -> None:
    statuses: list[int] = []

    async def request_twice(header_seconds: float) -> None:
        statuses.clear()
        async with connected(header_seconds) as connection:
            for request in (GET + b"\r\n", GET):
                await connection.send(request)
                statuses.append((await connection.response())[0])
                if statuses == [408]:  # the machine is busy
                    return

    await long_enough(request_twice, lambda: statuses != [408])

    assert statuses == [200, 408]


async def test_connection_without_a_request_is_closed() -> None:
    async with connected(SHORT_SECONDS) as connection:
        assert await connection.reader.read() == b""


async def test_invalid_http_gets_400() -> None:
    async with connected() as connection:
        await connection.send(b"\x00\r\n\r\n")
        assert (await connection.response())[0] == 400
        assert await connection.reader.read() == b""


async def test_rejection_is_not_written_into_the_response_of_an_earlier_request() -> None:
    async with connected() as connection:
        await connection.send(b"GET /stream HTTP/1.1\r\nHost: tracer\r\n\r\n")
        await connection.reader.readuntil(b"begun\r\n")
        await connection.send(GET + header(2 * MAX_HEADER_BYTES))
        rest = await connection.reader.read()

    assert rest == b""


def test_serve_command_rejects_headers_above_the_limit_with_431(
    database_url: str, tmp_path: Path
) -> None:
    with tracer_server(database_url, tmp_path) as address:
        answer = httpx2.get(f"{address}/healthz", headers={"X-Header": "x" * MAX_HEADER_BYTES})

    assert answer.status_code == 431
    assert answer.headers["content-type"] == "application/problem+json"
