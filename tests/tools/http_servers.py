"""HTTP servers on the loopback interface, for answers that no server framework would give."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Received], "bytes | AsyncIterator[bytes]"]
"""What a server sends back: all at once, or bit by bit for as long as somebody reads."""


@dataclass
class HttpServer:
    port: int
    received: list[Received] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has left before its answer was all sent."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"


@asynccontextmanager
async def http_server(
    answer: Answer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpServer]:
    """Serve while inside, on a free port; each connection gets one answer."""
    open_connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            request = await _read(reader)
            served.received.append(request)
            said = answer(request)
            if isinstance(said, bytes):
                writer.write(said)
                await writer.drain()
            else:
                await _send(said, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            served.left.set()
        except asyncio.CancelledError:
            pass  # the server ends
        finally:
            open_connections.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    served = HttpServer(server.sockets[0].getsockname()[1])
    try:
        yield served
    finally:
        server.close()
        for task in list(open_connections):
            task.cancel()
        await asyncio.gather(*open_connections)
        await server.wait_closed()


def reply(
    status: int = 200, body: bytes | str | None = None, *, json: Any = None, **headers: str
) -> bytes:
    """Return a whole answer. `content_type` names the header `Content-Type`, and so on."""
    content = _dumped(json) if body is None and json is not None else body or b""
    if isinstance(content, str):
        content = content.encode()
    if json is not None:
        headers.setdefault("content_type", "application/json")
    if status != 204:
        headers.setdefault("content_length", str(len(content)))
    return head(status, **headers) + content


def head(status: int = 200, **headers: str) -> bytes:
    """Return the head of an answer after which the connection is closed."""
    lines = [f"HTTP/1.1 {status} Whatever", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def silence(*first: bytes) -> AsyncIterator[bytes]:
    """Send this, then nothing for as long as the client waits."""
    for each in first:
        yield each
    await asyncio.Event().wait()


async def endless(first: bytes, again: bytes) -> AsyncIterator[bytes]:
    """Send this, then the other again and again."""
    yield first
    while True:
        yield again


async def _send(
    said: AsyncIterator[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def send() -> None:
        async for part in said:
            writer.write(part)
            await writer.drain()

    sending, gone = asyncio.create_task(send()), asyncio.create_task(reader.read())
    try:
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            raise ConnectionResetError
        await sending
    finally:
        sending.cancel()
        gone.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Received:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    method, target, _version = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _colon, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, target, headers, body)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()
