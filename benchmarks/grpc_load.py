"""Calling a server by gRPC as fast as it answers, from a process of its own."""

from __future__ import annotations

import asyncio
from time import perf_counter, process_time
from typing import Any

import grpc

from benchmarks.http_load import Sent, Sequences

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def send_calls(address: str, sequences: Sequences, clients: int) -> Sent:
    """Send serialized trace requests by several clients at once, each over its own connection.

    Args:
        address: The server's gRPC address.
        sequences: The requests.
        clients: How many sequences are sent at the same time.

    Raises:
        grpc.RpcError: A call was refused.
    """
    return asyncio.run(_send(address, sequences, clients))


async def _send(address: str, sequences: Sequences, clients: int) -> Sent:
    sent = Sent()
    left = iter(sequences)
    # Without this, all channels of a process share one connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(clients)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))

    async def client(channel: grpc.aio.Channel) -> None:
        export: Any = channel.unary_unary(_EXPORT)
        for sequence in left:
            for request in sequence:
                began = perf_counter()
                await export(request)
                sent.latencies.append(1000 * (perf_counter() - began))

    began, worked = perf_counter(), process_time()
    await asyncio.gather(*map(client, channels))
    sent.seconds, sent.processor_seconds = perf_counter() - began, process_time() - worked
    await asyncio.gather(*(channel.close() for channel in channels))
    return sent
