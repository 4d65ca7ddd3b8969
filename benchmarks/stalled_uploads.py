"""Measure one project's writes while a key of another project keeps stalled uploads open.

The attack keeps 140 uploads open that announce 1,000 bytes and five that announce 64 MiB. Each
sends one byte and stops. When the server answers an upload, the attack opens it again a second
later. Rounds without and with the attack alternate.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.synchronize
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from urllib.parse import urlsplit

from api.commands.database import key_ring
from benchmarks.figures import Figure, at_most
from benchmarks.http_load import RETRY_SECONDS, Sent, load_process, otlp, send
from benchmarks.surroundings import Bench
from benchmarks.workload import bodies, trace
from tracer.records.access import Scope

CLIENTS = 4
ANNOUNCED = [1_000] * 140 + [64 * 2**20] * 5
"""The `Content-Length` of each upload, in bytes."""


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the writes without and with the attack, in turn."""
    rounds, requests = bench.sized(5, 1), bench.sized(500, 5)
    p99: dict[bool, list[float]] = {False: [], True: []}
    refused = 0
    with bench.database() as url:
        attacker, victim = asyncio.run(_two_keys(url))
        with bench.server(url) as server, load_process() as sender:

            def write(first: int) -> Sent:
                header = f"Authorization: Bearer {victim}"
                sequences = [
                    [otlp(body, "/v1/traces", header) for body in bodies(trace(n, requests), 1)]
                    for n in range(first, first + CLIENTS)
                ]
                return sender.submit(send, server.address, sequences, CLIENTS).result()

            write(bench.seed * 10_000)
            for number in range(rounds):
                bench.say(f"round {number + 1} of {rounds}")
                first = bench.seed * 10_000 + 100 * (number + 1)
                p99[False].append(_p99(write(first)))
                with _attack(server.address, attacker):
                    sent = write(first + CLIENTS)
                p99[True].append(_p99(sent))
                refused += sent.waits
    assert not refused, f"{refused} writes of the other project were refused"
    yield Figure(name="a write alone, p99", value=median(p99[False]), unit="ms")
    yield Figure(
        name="a write during stalled uploads, p99",
        value=median(p99[True]),
        unit="ms",
        yardstick="a write alone, p99",
        ratio=median(with_it / alone for alone, with_it in zip(*p99.values(), strict=True)),
        goal=at_most(2.0, "ratio"),
    )


def _p99(sent: Sent) -> float:
    return quantiles(sent.latencies, n=100)[-1]


async def _two_keys(url: str) -> list[str]:
    """Return a key of each of two projects."""
    async with key_ring(url) as ring:
        keys = [
            await (await ring.made(name)).create(name, [Scope.RECORD])
            for name in ("attacker", "victim")
        ]
    return [key.secret for key in keys]


@contextmanager
def _attack(address: str, key: str) -> Iterator[None]:
    """Keep the uploads open while inside, from a process of their own."""
    context = multiprocessing.get_context("spawn")
    are_open = context.Event()
    process = context.Process(target=_keep_open, args=(address, key, are_open))
    process.start()
    try:
        assert are_open.wait(60), "the uploads were not opened"
        yield
    finally:
        process.terminate()
        process.join()


def _keep_open(address: str, key: str, are_open: multiprocessing.synchronize.Event) -> None:
    asyncio.run(_keep_all_open(address, key, are_open))


async def _keep_all_open(
    address: str, key: str, are_open: multiprocessing.synchronize.Event
) -> None:
    opened = 0

    async def keep_one_open(announced: int) -> None:
        nonlocal opened
        parts = urlsplit(address)
        head = (
            f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/x-protobuf\r\nContent-Length: {announced}\r\n\r\n"
        )
        while True:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(head.encode() + b"\n")
            opened += 1
            if opened == len(ANNOUNCED):
                are_open.set()
            await reader.readline()
            writer.close()
            await asyncio.sleep(RETRY_SECONDS)

    await asyncio.gather(*map(keep_one_open, ANNOUNCED))
