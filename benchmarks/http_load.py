"""Sending requests as fast as a server answers them, from a process of its own.

The requests are complete before the first is sent, so that the sender costs little.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvloop

RETRY_SECONDS = 1.0
"""The pause if the server is too busy."""

Sequences = Sequence[Sequence[bytes]]
"""Requests in sequences. One client sends the requests of a sequence one after another."""


@dataclass
class Sent:
    """The cost of sending."""

    seconds: float = 0.0
    """From the first request to the last answer."""
    latencies: list[float] = field(default_factory=list)
    """The time of each answered request, in milliseconds."""
    bytes_received: int = 0
    waits: int = 0
    """How many times the server was too busy."""
    processor_seconds: float = 0.0
    """How long the sender worked."""

    @property
    def rate(self) -> float:
        """How many requests were answered a second."""
        return len(self.latencies) / self.seconds


def post(path: str, body: bytes, media_type: str, *headers: str) -> bytes:
    """Return a request with a body."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {media_type}", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def get(path: str) -> bytes:
    """Return a request without one."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def otlp(body: bytes, path: str = "/v1/traces", *headers: str) -> bytes:
    """Return the request that sends OTLP in protobuf."""
    return post(path, body, "application/x-protobuf", *headers)


@contextmanager
def load_process() -> Iterator[Executor]:
    """Give a process to send from: `process.submit(send, …)`."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(int).result()  # it has started
        yield process


def send(address: str, sequences: Sequences, clients: int, most_waits: int = 1_000) -> Sent:
    """Send requests by several clients at once, each over a connection that it keeps.

    Args:
        address: The server's address.
        sequences: The requests.
        clients: How many sequences are sent at the same time.
        most_waits: How many times the server may be too busy.

    Raises:
        RuntimeError: A request was refused.
        ConnectionError: The server went away.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(address, sequences, clients, most_waits))


async def _send(address: str, sequences: Sequences, clients: int, most_waits: int) -> Sent:
    connections = [await _connect(address) for _ in range(min(clients, len(sequences)))]
    sent = Sent()
    left = iter(sequences)

    async def client(connection: Connection) -> None:
        for sequence in left:
            for request in sequence:
                began = perf_counter()
                while (status := await connection.ask(request)) == 503 and sent.waits < most_waits:
                    sent.waits += 1
                    await asyncio.sleep(RETRY_SECONDS)
                if status >= 300:
                    raise RuntimeError(f"status {status}: {connection.body[:300]!r}")
                sent.latencies.append(1000 * (perf_counter() - began))
                sent.bytes_received += len(connection.body)

    began, worked = perf_counter(), process_time()
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(client(connection))
    sent.seconds, sent.processor_seconds = perf_counter() - began, process_time() - worked
    for connection in connections:
        connection.close()
    return sent


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Connection]:
    """Give a connection to a server, and close it afterwards."""
    connection = await _connect(address)
    try:
        yield connection
    finally:
        connection.close()


async def _connect(address: str) -> Connection:
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(Connection, parts.hostname, parts.port))[1]


class Connection(asyncio.Protocol):
    """A connection that sends one request after another."""

    def __init__(self) -> None:
        self.body = b""
        """Of the last answer."""
        self._parts: list[bytes] = []
        self._answered: asyncio.Future[int] | None = None
        self._parser = httptools.HttpResponseParser(self)

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; the result is the status of its answer."""
        self._answered = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            self._answered.set_exception(ConnectionError("the server closed the connection"))
        else:
            self._transport.write(request)
        return self._answered

    def close(self) -> None:
        """End it."""
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse a part of a response."""
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the question that waits for an answer."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error or ConnectionError("the server hung up"))

    def on_body(self, part: bytes) -> None:
        """Keep a part of a body."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """Answer the question."""
        self.body, self._parts = b"".join(self._parts), []
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(self._parser.get_status_code())
