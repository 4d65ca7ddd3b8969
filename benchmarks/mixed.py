"""Writing while a run's tree is read once a second: the cost for writers, and the reading time.

Clients write runs of 1,000 spans at full speed, one after another. In every second round the tree
of the newest run is read once a second, with the spans that are stored by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from statistics import median

import httpx2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.figures import Figure, at_least, at_most, spread
from benchmarks.http_load import Sent, get, load_process, otlp, send
from benchmarks.ingest import wait_until_projected
from benchmarks.surroundings import Bench
from benchmarks.workload import bodies, trace

RECORDS = 1_000
CLIENTS = 4
BATCH = 128
"""Smaller than an exporter's largest: the run is there from early on, and grows."""

READ_SECONDS = 1.0


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure writing alone and writing while reading, in turn."""
    rounds, runs = bench.sized(3, 1), bench.sized(40, 4)
    alone: list[float] = []
    ratios: list[float] = []
    read: list[float] = []
    with (
        bench.database() as url,
        bench.server(url) as server,
        load_process() as sender,
    ):
        send(server.address, _requests([trace(bench.seed * 77, RECORDS)]), 1)
        for number in range(rounds):
            bench.say(f"round {number + 1} of {rounds}")
            first = (bench.seed * 10 + 2 * number) * 1_000
            one, other = (
                [trace(start + run, RECORDS) for run in range(runs)]
                for start in (first, first + 1_000)
            )
            rate = write(sender, server.address, one).result().rate * BATCH
            wait_until_projected(url)
            writing = write(sender, server.address, other)
            read += _read_while(writing, server.address)
            alone.append(rate)
            ratios.append(writing.result().rate * BATCH / rate)
            wait_until_projected(url)
    yield Figure(name="writing alone", value=median(alone), unit="spans/s")
    yield Figure(
        name="writing while its tree is read",
        value=median(alone) * median(ratios),
        unit="spans/s",
        yardstick="writing alone",
        ratio=median(ratios),
        goal=at_least(0.75),
    )
    yield from spread("a tree read meanwhile", read, goal=at_most(200, "value"))


def _requests(runs: Sequence[list[Span]]) -> list[list[bytes]]:
    return [[otlp(body) for body in bodies(spans, BATCH)] for spans in runs]


def write(sender: Executor, address: str, runs: Sequence[list[Span]]) -> Future[Sent]:
    """Send runs from another process, one after another, with several clients."""
    return sender.submit(send, address, _requests(runs), CLIENTS)


def _read_while(writing: Future[Sent], address: str) -> list[float]:
    """Return the milliseconds of each read, one a second while `writing` runs."""
    taken: list[float] = []
    while True:
        try:
            writing.result(timeout=READ_SECONDS)
        except TimeoutError:
            taken += _read(address)
        else:
            return taken or _read(address)


def _read(address: str) -> list[float]:
    """Return how long it takes to read the tree of the run that was begun last."""
    [run] = httpx2.get(f"{address}/api/runs", params={"limit": 1}).json()["items"]
    return send(address, [[get(f"/api/plans/{run['rootPlanId']}/tree")]], 1).latencies
