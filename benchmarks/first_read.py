"""The cost of the first read of a run that was just acknowledged: the read projects it.

The tree of a new run of 1,000 spans is read right after the last answer, again and again with
another run. The cost is the processor time of the server, its projectors and Postgres meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import mean, median
from time import perf_counter
from typing import Any
from uuid import UUID

import orjson
import psutil

from benchmarks.figures import Figure, at_most
from benchmarks.http_load import Connection, connected, get, otlp
from benchmarks.other_forms import tool_calls_of
from benchmarks.surroundings import Bench, processor_seconds
from benchmarks.workload import bodies, trace

SIZE = 1_000
COMPLETE_SECONDS = 60.0


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the first and the second read of each run."""
    times = bench.sized(30, 3)
    with bench.database() as url, bench.server(url) as server:
        bench.say("first reads")
        processes = [psutil.Process(server.process.pid), bench.postgres_process()]
        first, second = asyncio.run(_read_runs(bench.seed, times, server.address, processes))
    name = f"first read of a run of {SIZE:,} spans"
    yield Figure(name=f"{name}, p50", value=median(first.taken), unit="ms")
    # A system counts work in ticks of several milliseconds: the mean is exact, a median is not.
    again = mean(second.worked)
    yield Figure(name="second read: server and Postgres worked", value=again, unit="ms")
    yield Figure(
        name=f"{name}: server, projectors and Postgres worked",
        value=mean(first.worked),
        unit="ms",
        yardstick="second read",
        ratio=mean(first.worked) / again,
        goal=at_most(100, "value"),
    )


@dataclass
class Reads:
    """What reads took."""

    taken: list[float] = field(default_factory=list)
    """Milliseconds."""
    worked: list[float] = field(default_factory=list)
    """Milliseconds of processor time."""


async def _read_runs(
    seed: int, times: int, address: str, processes: list[psutil.Process]
) -> tuple[Reads, Reads]:
    """Return what the first and the second read of each run took.

    Raises:
        AssertionError: A tree lacks something.
    """
    both = Reads(), Reads()
    async with connected(address) as connection:
        for number in range(times + 1):
            spans = trace(seed * 1_000 + 300_000 + number, SIZE)
            for body in bodies(spans):
                assert await connection.ask(otlp(body)) == 200, connection.body[:300]
            path = f"/api/plans/{UUID(bytes=spans[0].trace_id)}/tree?payloads=none"
            for reads in both:
                before, began = sum(map(processor_seconds, processes)), perf_counter()
                totals = await _complete_totals(connection, path, tool_calls_of(spans))
                seconds = perf_counter() - began
                worked = sum(map(processor_seconds, processes)) - before
                # Calls that the cut end of the trace requests without a span count, too.
                assert totals["toolCalls"] >= tool_calls_of(spans), f"calls are missing: {totals}"
                if number:  # the first run warms up
                    reads.taken.append(1000 * seconds)
                    reads.worked.append(1000 * worked)
    return both


async def _complete_totals(connection: Connection, path: str, tool_calls: int) -> dict[str, Any]:
    """Read a tree until it has all calls, and return its totals.

    A read waits up to two seconds for the projection. On a slow machine that is not enough.
    """
    end = perf_counter() + COMPLETE_SECONDS
    while True:
        status = await connection.ask(get(path))
        assert status == 200, f"status {status}: {connection.body[:300]!r}"
        totals: dict[str, Any] = orjson.loads(connection.body)["cumulative"]
        if totals["toolCalls"] >= tool_calls or perf_counter() > end:
            return totals
