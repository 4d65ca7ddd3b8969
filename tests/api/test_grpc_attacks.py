"""Hostile clients of the gRPC port, which send frames of HTTP/2 by hand."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from api.app import create_app
from api.otlp import GrpcAddress, grpc_serving
from api.parts import Parts
from api.requests import Intake
from tests.api.conftest import serving_parts
from tests.api.test_grpc import SECONDS, a_trace, served_by_grpc, stub_of
from tracer.runtime.scripted_model import ScriptedModel

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ACCEPTED, INVALID = "0", "3"
"""Values of the header `grpc-status`."""


@pytest.fixture
async def parts(database_url: str, tmp_path: Path) -> AsyncIterator[Parts]:
    async with serving_parts(database_url, tmp_path, ScriptedModel([])) as parts:
        yield parts


class Client:
    """A connection of HTTP/2."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        config = h2.config.H2Configuration()  # headers are bytes
        self._state = h2.connection.H2Connection(config)
        self._state.initiate_connection()

    async def begin(self) -> int:
        """Send the headers of a call without a message, and return its stream."""
        stream = self._state.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": EXPORT,
            ":authority": "tracer",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        self._state.send_headers(stream, list(headers.items()))
        await self._flush()
        return stream

    async def send(self, stream: int, data: bytes) -> None:
        """Send the last bytes of a call."""
        self._state.send_data(stream, data, end_stream=True)
        await self._flush()

    async def send_raw(self, data: bytes) -> None:
        await self._flush()
        self._writer.write(data)
        await self._writer.drain()

    async def status(self) -> str:
        """Return the status of the next call that ends."""
        while data := await self._reader.read(65_536):
            for event in self._state.receive_data(data):
                if isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                    for name, value in event.headers or ():
                        if name == b"grpc-status":
                            return value.decode()
            await self._flush()
        raise ConnectionError

    async def until_closed(self) -> None:
        """Wait until the server closes the connection."""
        while await self._reader.read(65_536):
            pass

    async def _flush(self) -> None:
        self._writer.write(self._state.data_to_send())
        await self._writer.drain()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def framed(message: bytes, length: int | None = None) -> bytes:
    """Return a message with the length that its prefix states."""
    return struct.pack(">BI", 0, len(message) if length is None else length) + message


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (framed(a_trace("planner").SerializeToString()), ACCEPTED),
        (framed(a_trace("planner").SerializeToString(), 10_000), INVALID),
        (2 * framed(a_trace("planner").SerializeToString()), INVALID),
        (b"", INVALID),
    ],
    ids=["one", "cut off", "two", "none"],
)
async def test_grpc_call_must_have_one_complete_message(
    parts: Parts, data: bytes, status: str
) -> None:
    async with served_by_grpc(parts) as address, connected(address) as client:
        await client.send(await client.begin(), data)
        assert await client.status() == status


async def test_idle_streams_of_one_connection_do_not_delay_other_clients(parts: Parts) -> None:
    async with (
        served_by_grpc(parts, intake=Intake(max_requests=200)) as address,
        connected(address) as client,
        grpc.aio.insecure_channel(address) as channel,
    ):
        for _ in range(100):
            await client.begin()
        for _ in range(5):
            await stub_of(TraceServiceStub, channel).Export(a_trace("planner"), timeout=SECONDS)


async def test_idle_and_unfinished_grpc_connections_are_closed(parts: Parts) -> None:
    app: Any = create_app(parts)
    address = GrpcAddress("127.0.0.1", 0, is_required=True)
    async with (
        grpc_serving(app, address, idle_seconds=1) as port,
        connected(f"127.0.0.1:{port}") as idle,
        connected(f"127.0.0.1:{port}") as unfinished,
    ):
        await idle.send_raw(b"")
        # The frame HEADERS of stream 1, with four bytes and without the flag END_HEADERS.
        await unfinished.send_raw(b"\0\0\4\1\0\0\0\0\1" + b"\0\1a\x7f")
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(idle.until_closed(), unfinished.until_closed())


@pytest.mark.parametrize(("host", "warnings"), [("127.0.0.1", 0), ("0.0.0.0", 1)])
async def test_grpc_beyond_loopback_logs_a_warning(
    parts: Parts, host: str, warnings: int, log: Any
) -> None:
    async with grpc_serving(create_app(parts), GrpcAddress(host, 0, is_required=True)):
        pass
    assert log.getvalue().count("grpc_beyond_loopback") == warnings
