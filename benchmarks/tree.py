"""The time to read a run's tree over HTTP, compared with the time of its SQL alone.

The server gets the same request over one connection repeatedly, and caches no response. Postgres
reports the time of the SQL: planning and execution, without sending the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from uuid import UUID

import psutil

from benchmarks.figures import Figure, at_most, p95
from benchmarks.http_load import get, otlp, send
from benchmarks.ingest import wait_until_projected
from benchmarks.statement_costs import Costs, costs_of, note_statements
from benchmarks.surroundings import WARM_UP, Bench, milliseconds, processor_seconds
from benchmarks.workload import bodies, trace

SIZES = (100, 1_000, 10_000)
GOALS = {(1_000, "none"): 10.0, (1_000, "preview"): 30.0, (10_000, "none"): 100.0}
"""The most milliseconds, by size and payloads."""

NOTED = 10
"""How many readings Postgres notes the statements of."""

NAMES = {"none": "light", "preview": "with previews"}


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure each size, light and with the beginnings of its payloads."""
    times = bench.sized(40, 5)
    with bench.database() as url:
        note_statements(url)
        with bench.server(url) as server:
            process = psutil.Process(server.process.pid)
            for size in SIZES[: bench.sized(3, 2)]:
                bench.say(f"{size:,} spans")
                spans = trace(bench.seed, size)
                send(server.address, [[otlp(body) for body in bodies(spans)]], 1)
                wait_until_projected(url)
                for payloads, name in NAMES.items():
                    path = f"/api/plans/{UUID(bytes=spans[0].trace_id)}/tree?payloads={payloads}"
                    bound = GOALS.get((size, payloads))
                    began = processor_seconds(process)
                    taken = milliseconds(server.address, path, times)
                    worked = 1000 * (processor_seconds(process) - began) / (times + WARM_UP)
                    again = [[get(path)] * NOTED]
                    costs = costs_of(url, NOTED, partial(send, server.address, again, 1))
                    yield from _figures(f"{size:,} spans, {name}", taken, worked, costs, bound)


def _figures(
    name: str, taken: list[float], worked: float, costs: Costs, bound: float | None
) -> Iterator[Figure]:
    p50 = median(taken)
    yield Figure(
        name=f"{name}, p50",
        value=p50,
        unit="ms",
        yardstick="its SQL by itself",
        ratio=p50 / costs.milliseconds,
        goal=None if bound is None else at_most(bound, "value"),
    )
    yield Figure(name=f"{name}, p95", value=p95(taken), unit="ms")
    yield Figure(name=f"{name}: the server worked", value=worked, unit="ms")
    yield Figure(name=f"{name}: its SQL by itself", value=costs.milliseconds, unit="ms")
    yield Figure(name=f"{name}: queries", value=costs.statements, unit="", goal=at_most(6, "value"))
