"""The projectors' cost of a trace that grows to 50,000 spans in parts of 50, for an hour.

The hour is computed. The projection of the trace, 50 spans after the projection before, is measured
at several sizes, and its cost is interpolated in between. Then the hour is played by the
projectors' rule: a run is due when it is quiet, and not before ten times the duration of its last
projection.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from uuid import UUID

import psutil
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.figures import Figure, at_most
from benchmarks.projection import collecting_as_a_server
from benchmarks.surroundings import Bench, processor_seconds
from benchmarks.workload import bodies, trace
from tracer.clock import utc_now
from tracer.records import DEFAULT_PROJECT_ID
from tracer.records.spans import TraceSpans
from tracer.storage.postgres import (
    PostgresWriter,
    ProjectPool,
    connection_options,
    open_pool,
    postgres_writer,
    sync_connection,
)
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.projector import Projector

SIZES = (1_000, 5_000, 10_000, 25_000, 50_000)
PART = 50
HOUR_SECONDS = 3_600.0
QUIET_SECONDS = 0.1
TIMES = 3
"""How often each size is measured; the median counts."""

_PAUSE = "SELECT extract(epoch FROM next_projection_at - %s)::float8 FROM run"


@dataclass(frozen=True)
class Cost:
    """The cost of a projection."""

    seconds: float
    worked: float
    """Processor seconds of the projector."""
    postgres: float
    """Processor seconds of Postgres."""
    pause: float
    """The seconds until the next projection is due."""


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure projections, and compute the hour."""
    sizes = SIZES[: bench.sized(len(SIZES), 2)]
    spans = trace(bench.seed + 400, sizes[-1] + PART * TIMES)
    postgres = bench.postgres_process()
    with (
        bench.database() as url,
        sync_connection(connection_options(url)) as connection,
        collecting_as_a_server(),
    ):
        costs = []
        for size in sizes:
            bench.say(f"a trace grown to {size:,} spans")
            costs.append(asyncio.run(_cost(url, connection, spans, size, postgres)))
            yield Figure(
                name=f"50 spans more in a trace of {size:,}: the projector worked",
                value=1000 * costs[-1].worked,
                unit="ms",
            )
    hour = _play(sizes, costs)
    name = f"a trace growing to {sizes[-1]:,} spans in an hour (computed)"
    yield Figure(name=f"{name}: projections", value=hour.projections, unit="")
    yield Figure(name=f"{name}: longest lag", value=hour.longest_lag, unit="s")
    yield Figure(
        name=f"{name}: projector and Postgres worked",
        value=100 * hour.worked / HOUR_SECONDS,
        unit="% of a core",
        goal=at_most(10, "value"),
    )


async def _cost(
    url: str, connection: SyncConnection, spans: list[Span], size: int, postgres: psutil.Process
) -> Cost:
    """Let the trace grow to a size, and measure the next projections of 50 spans more."""
    taken: list[Cost] = []
    now = utc_now()
    projector = Projector(connection, clock=lambda: now)
    run_id = UUID(bytes=spans[0].trace_id)
    async with open_pool(url) as pool:
        writer = postgres_writer(ProjectPool(pool))
        # Known spans are sent again: equal blocks are stored once.
        for start in range(0, size, PART):
            await _write(writer, spans[start : start + PART])
        assert projector.project_run(DEFAULT_PROJECT_ID, run_id) or size == 0
        for number in range(TIMES):
            start = size + PART * number
            await _write(writer, spans[start : start + PART])
            before = processor_seconds(postgres)
            worked, began = process_time(), perf_counter()
            assert projector.project_run(DEFAULT_PROJECT_ID, run_id)
            seconds, worked = perf_counter() - began, process_time() - worked
            postgres_worked = processor_seconds(postgres) - before
            [(pause,)] = connection.execute(_PAUSE, [now]).fetchall()
            # The pause that it would be if nothing else slowed the projection down.
            pause *= min(1.0, (worked + postgres_worked) / seconds)
            taken.append(Cost(seconds, worked, postgres_worked, pause))
    return Cost(
        median(each.seconds for each in taken),
        median(each.worked for each in taken),
        sum(each.postgres for each in taken) / len(taken),
        median(each.pause for each in taken),
    )


async def _write(writer: PostgresWriter, spans: list[Span]) -> None:
    [body] = bodies(spans, PART)
    answer = await writer.write_spans([TraceSpans(spans[0].trace_id, body, len(spans))])
    assert not answer.refused, answer.refused


@dataclass
class Hour:
    """The result of the hour."""

    projections: int = 0
    worked: float = 0.0
    """Processor seconds of projector and Postgres."""
    longest_lag: float = 0.0


def _play(sizes: tuple[int, ...], costs: list[Cost]) -> Hour:
    """Let parts arrive evenly for an hour, and project them when they are due."""
    parts = sizes[-1] // PART
    between = HOUR_SECONDS / parts
    hour = Hour()
    projected, not_before = 0, 0.0
    while projected < parts:
        # Parts come less often than a run is quiet, so each is due by itself.
        begin = max(projected * between + QUIET_SECONDS, not_before)
        first_waiting = projected * between
        projected = min(parts, int(begin / between) + 1)
        cost = _interpolated(sizes, costs, projected * PART)
        end = begin + cost.seconds
        hour.projections += 1
        hour.worked += cost.worked + cost.postgres
        hour.longest_lag = max(hour.longest_lag, end - first_waiting)
        not_before = end + cost.pause
    return hour


def _interpolated(sizes: tuple[int, ...], costs: list[Cost], size: int) -> Cost:
    place = min(max(1, bisect(sizes, size)), len(sizes) - 1)
    small, large = costs[place - 1], costs[place]
    part = (size - sizes[place - 1]) / (sizes[place] - sizes[place - 1])

    def between(one: float, other: float) -> float:
        return max(0.0, one + part * (other - one))

    return Cost(
        between(small.seconds, large.seconds),
        between(small.worked, large.worked),
        between(small.postgres, large.postgres),
        between(small.pause, large.pause),
    )
