"""How long it takes from the last acknowledgement of a trace until its records are committed.

Two traces of 1,000 spans a second: each in parts of 50 over half a second, or whole. The database
is asked every few milliseconds which runs are pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from uuid import UUID

import psycopg

from benchmarks.figures import Figure, at_most, p95, spread
from benchmarks.http_load import Connection, connected, otlp
from benchmarks.surroundings import Bench
from benchmarks.workload import bodies, trace

SIZE = 1_000
TRACES_A_SECOND = 2
PART = 50
POLL_SECONDS = 0.005

_PENDING = "SELECT root_plan_id FROM pending_run"


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure both forms."""
    number = bench.sized(40, 4)
    with bench.database() as url, bench.server(url) as server:
        for place, (form, part) in enumerate({"whole": SIZE, f"parts of {PART}": PART}.items()):
            bench.say(f"lag, traces sent in {form}")
            first = bench.seed * 1_000 + 500 * place + 100_000
            sent = {
                UUID(bytes=spans[0].trace_id): [otlp(body) for body in bodies(spans, part)]
                for spans in (trace(first + each, SIZE) for each in range(number + 1))
            }
            answering, lags = asyncio.run(_lags(url, server.address, sent))
            name = f"traces of {SIZE:,} sent {form}"
            yield from spread(f"{name}: acknowledged", answering)
            yield from _with_goals(f"{name}: from acknowledged to projected", lags)


def _with_goals(name: str, lags: list[float]) -> Iterator[Figure]:
    bounds = (("p50", median(lags), 300), ("p95", p95(lags), 500))
    for which, value, bound in bounds:
        goal = at_most(bound, "value")
        yield Figure(name=f"{name}, {which}", value=value, unit="ms", goal=goal)


async def _lags(
    url: str, address: str, sent: dict[UUID, list[bytes]]
) -> tuple[list[float], list[float]]:
    """Send traces, and return the milliseconds of each answer, and of each trace's lag.

    The first trace warms up.
    """
    acknowledged: dict[UUID, float] = {}
    projected: dict[UUID, float] = {}
    answering: list[float] = []
    warm_up, *run_ids = sent

    async def send_trace(run_id: UUID, connection: Connection) -> None:
        requests = sent[run_id]
        pause = 1 / TRACES_A_SECOND / len(requests)
        began = perf_counter()
        for place, request in enumerate(requests):
            await asyncio.sleep(began + place * pause - perf_counter())
            at = perf_counter()
            status = await connection.ask(request)
            assert status == 200, f"status {status}: {connection.body[:300]!r}"
            answering.append(1000 * (perf_counter() - at))
        acknowledged[run_id] = perf_counter()

    async def send_all() -> None:
        async with connected(address) as connection:
            for run_id in run_ids:
                began = perf_counter()
                await send_trace(run_id, connection)
                await asyncio.sleep(began + 1 / TRACES_A_SECOND - perf_counter())

    async def observe(database: psycopg.AsyncConnection) -> None:
        while len(projected) < len(run_ids):
            waiting = acknowledged.keys() - projected.keys()
            if waiting:
                rows = await (await database.execute(_PENDING)).fetchall()
                now = perf_counter()
                projected.update(dict.fromkeys(waiting - {run_id for (run_id,) in rows}, now))
            await asyncio.sleep(POLL_SECONDS)

    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as database,
        connected(address) as connection,
    ):
        await send_trace(warm_up, connection)
        await asyncio.sleep(1)
        acknowledged.clear()
        answering.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all())
            group.create_task(observe(database))
    return answering, [1000 * (projected[each] - acknowledged[each]) for each in run_ids]
