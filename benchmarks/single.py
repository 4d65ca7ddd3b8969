"""The rate of requests with one span from 64 clients, against the rate of empty requests.

Each client is a program that sends every span by itself, trace by trace. The empty endpoint is
`/healthz` of the same server, asked by as many clients; the two take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import psutil
import psycopg

from benchmarks.figures import Figure, at_least, p95
from benchmarks.http_load import get, load_process, send
from benchmarks.ingest import SINGLE_CLIENTS, STORED, single_requests
from benchmarks.surroundings import Bench, processor_seconds
from benchmarks.workload import trace


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure both in turn."""
    rounds, spans = bench.sized(3, 1), bench.sized(50, 5)
    rates: dict[str, list[float]] = {"empty": [], "span": []}
    latencies: list[float] = []
    worked: list[float] = []
    with (
        bench.database() as url,
        bench.server(url) as server,
        load_process() as sender,
    ):
        process = psutil.Process(server.process.pid)
        nothing = [[get("/healthz")] * spans] * SINGLE_CLIENTS
        sender.submit(send, server.address, nothing, SINGLE_CLIENTS).result()
        for number in range(rounds):
            bench.say(f"round {number + 1} of {rounds}")
            first = (bench.seed + number) * 1_000
            one_by_one = [
                single_requests(trace(first + client, spans)) for client in range(SINGLE_CLIENTS)
            ]
            rates["empty"].append(
                sender.submit(send, server.address, nothing, SINGLE_CLIENTS).result().rate
            )
            began = processor_seconds(process)
            sent = sender.submit(send, server.address, one_by_one, SINGLE_CLIENTS).result()
            worked.append(1e6 * (processor_seconds(process) - began) / len(sent.latencies))
            rates["span"].append(sent.rate)
            latencies += sent.latencies
        with psycopg.connect(url) as connection:
            stored = connection.execute(STORED.encode()).fetchone()
        assert stored == (rounds * SINGLE_CLIENTS * spans,), f"only {stored} spans are stored"
    ratios = [one / other for one, other in zip(rates["span"], rates["empty"], strict=True)]
    yield Figure(name="an empty endpoint", value=median(rates["empty"]), unit="requests/s")
    yield Figure(
        name="a span a request",
        value=median(rates["span"]),
        unit="requests/s",
        yardstick="an empty endpoint",
        ratio=median(ratios),
        goal=at_least(0.3),
    )
    yield Figure(name="until it is acknowledged, p50", value=median(latencies), unit="ms")
    yield Figure(name="until it is acknowledged, p95", value=p95(latencies), unit="ms")
    yield Figure(name="the server worked", value=median(worked), unit="µs/request")
