"""The server is killed while programs export spans to it over gRPC."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import psycopg
import pytest

from tests.api.test_grpc import free_port
from tests.otel.made_traces import agent, spans_from
from tests.servers import Server, start_server
from tests.torture.lengths import KILLS
from tracer.otel.otlp.spans import encode_protobuf

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SECONDS = 60


@pytest.mark.thorough
async def test_spans_acknowledged_by_a_killed_grpc_server_are_stored(
    database_url: str, tmp_path: Path
) -> None:
    port, http_port = free_port(), free_port()
    settings = {"TRACER_GRPC_PORT": str(port)}

    def start() -> Server:
        return start_server(database_url, tmp_path, port=http_port, settings=settings)

    server = await asyncio.to_thread(start)
    acknowledged: list[UUID] = []
    answers = asyncio.Queue[None]()
    failures = 0
    is_over = asyncio.Event()

    async def program() -> None:
        nonlocal failures
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            export: Any = channel.unary_unary(METHOD)
            while not is_over.is_set():
                trace_id = os.urandom(16)
                [span] = spans_from(agent(1, "planner"))
                body = encode_protobuf([span]).replace(span.trace_id, trace_id)
                try:
                    await export(body, timeout=SECONDS, wait_for_ready=True)
                except grpc.aio.AioRpcError:
                    failures += 1
                else:
                    acknowledged.append(UUID(bytes=trace_id))
                    answers.put_nowait(None)

    programs = [asyncio.create_task(program()) for _ in range(4)]
    try:
        for _ in range(KILLS):
            for _ in range(200):
                await answers.get()
            server.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(server.process.wait)
            server = await asyncio.to_thread(start)
    finally:
        is_over.set()
        await asyncio.gather(*programs)
        server.process.terminate()
        await asyncio.to_thread(server.process.wait)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute("SELECT root_plan_id FROM otel_block")
        stored = {run_id for (run_id,) in await cursor.fetchall()}
    assert failures > 0
    assert set(acknowledged) - stored == set()
