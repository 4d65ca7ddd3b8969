"""How much memory the server takes up under full load, and whether it grows with each.

Resident memory of the server's process, looked at every 20 ms. What the application starts (the
demonstration has an MCP server) is told beside it: it takes the same whatever is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import psutil

from benchmarks.figures import Figure, at_most
from benchmarks.http_load import Sent, load_process, send
from benchmarks.ingest import load_of, otlp_requests
from benchmarks.other_forms import exporters
from benchmarks.surroundings import Bench

CLIENTS = 16
LOADS = 3
LOOK_SECONDS = 0.02


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the same load several times, with other traces."""
    most = 0.0
    after: list[float] = []
    with (
        bench.database() as url,
        bench.server(url) as server,
        load_process() as sender,
    ):
        process = psutil.Process(server.process.pid)
        yield Figure(name="at the start", value=_megabytes(process), unit="MB")
        beside = sum(map(_megabytes, process.children(recursive=True)))
        yield Figure(name="the application's MCP server, beside it", value=beside, unit="MB")
        for number in range(LOADS):
            bench.say(f"load {number + 1} of {LOADS}")
            sent = exporters(bench.seed + 50 + number, 1_000, bench.sized(40_000, 2_000))
            requests = load_of(sent, otlp_requests).sequences
            most = max(most, _most(process, sender.submit(send, server.address, requests, CLIENTS)))
            after.append(_megabytes(process))
    yield Figure(name="at full load", value=most, unit="MB", goal=at_most(400, "value"))
    yield Figure(name="after the first load", value=after[0], unit="MB")
    yield Figure(
        name=f"after {LOADS} loads",
        value=after[-1],
        unit="MB",
        yardstick="after the first load",
        ratio=after[-1] / after[0],
        goal=at_most(1.2),
    )


def _most(process: psutil.Process, sending: Future[Sent]) -> float:
    """Return the most that was seen until everything is sent."""
    most = 0.0
    while True:
        try:
            sending.result(timeout=LOOK_SECONDS)
        except TimeoutError:
            most = max(most, _megabytes(process))
        else:
            return most


def _megabytes(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6
