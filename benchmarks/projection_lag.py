"""How long it takes from the last acknowledgement of a trace until its records are committed.

Two traces of 1,000 spans a second: each in parts of 50 over half a second, or whole, and whole
while a run that is large enough to take half a minute is projected. The database is asked every few
milliseconds which runs are pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import median
from time import perf_counter, sleep
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
LARGE = 250_000
"""The spans of the large run."""

_PENDING = "SELECT root_plan_id FROM pending_run"


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure both forms."""
    number = bench.sized(40, 4)
    with bench.database() as url, bench.server(url) as server:
        for place, (form, part) in enumerate({"whole": SIZE, f"parts of {PART}": PART}.items()):
            bench.say(f"lag, traces sent in {form}")
            first = bench.seed * 1_000 + 500 * place + 100_000
            sent = _requests(first, number + 1, part)
            answering, lags = asyncio.run(_lags(url, server.address, sent))
            name = f"traces of {SIZE:,} sent {form}"
            yield from spread(f"{name}: acknowledged", answering)
            yield from _with_goals(f"{name}: from acknowledged to projected", lags, (300, 500))

        size = bench.sized(LARGE, 20_000)
        bench.say(f"lag while a run of {size:,} spans is projected")
        first = bench.seed * 1_000 + 101_000
        large = [otlp(body) for body in bodies(trace(first, size), 500)]
        sent = _requests(first + 1, number + 1, SIZE)
        asyncio.run(_send(server.address, large))
        began = perf_counter()
        _, lags = asyncio.run(_lags(url, server.address, sent))
        with psycopg.connect(url, autocommit=True) as database:
            while database.execute(_PENDING).fetchall():
                sleep(POLL_SECONDS)
        seconds = perf_counter() - began
        name = f"a run of {size:,}, and traces of {SIZE:,} meanwhile"
        yield Figure(name=f"{name}: the run, until it was projected", value=seconds, unit="s")
        yield from _with_goals(f"{name}: their lag", lags, (1_000, 2_000))


def _requests(first: int, number: int, part: int) -> dict[UUID, list[bytes]]:
    """Return the requests of some traces, by run."""
    return {
        UUID(bytes=spans[0].trace_id): [otlp(body) for body in bodies(spans, part)]
        for spans in (trace(first + each, SIZE) for each in range(number))
    }


async def _send(address: str, requests: list[bytes]) -> None:
    async with connected(address) as connection:
        for request in requests:
            assert await connection.ask(request) == 200, connection.body[:300]


def _with_goals(name: str, lags: list[float], goals: tuple[float, float]) -> Iterator[Figure]:
    bounds = (("p50", median(lags), goals[0]), ("p95", p95(lags), goals[1]))
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
