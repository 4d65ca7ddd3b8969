"""Read the state of a server at each scrape: pool, recorder, projections and database."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import version

from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric

from tracer.assembly import Parts
from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.recorder.recorder import Recorder
from tracer.storage.postgres.administration.migrate import head

ANSWER_SECONDS = 2.0
"""The default time limit of a database query. Prometheus does not wait long for the metrics."""


async def server_metrics(parts: Parts, answer_seconds: float = ANSWER_SECONDS) -> list[Metric]:
    """Return metrics of a server's current state. Metrics that cannot be read now are omitted.

    Args:
        parts: The server's components.
        answer_seconds: How long the database may take to answer a query.
    """
    build = Gauge("tracer_build_info", "Always 1. The labels name the version.", labels=_BUILD)
    build.add_metric(_build(), 1)
    metrics: list[Metric] = [build]
    if parts.projections is not None:
        failures = Counter(
            "tracer_projection_failures",
            "Projections that failed, and projectors that died during one.",
            parts.projections.failures,
        )
        metrics.append(failures)
    if parts.stores is not None:
        metrics += _of_pool(parts.stores.pool_stats())
    if parts.recorder is not None:
        metrics += [each async for each in _of_recorder(parts.recorder)]
    return metrics + [each async for each in _of_database(parts, answer_seconds)]


_BUILD = ("version", "schema_revision")


@functools.cache
def _build() -> tuple[str, str]:
    return version("tracer-lineage-server"), head()


def _of_pool(pool: Mapping[str, int]) -> Iterator[Metric]:
    idle = pool["pool_available"]
    yield _by_state(
        "tracer_pool_connections",
        "Open connections to the database.",
        used=pool["pool_size"] - idle,
        idle=idle,
    )
    waiting, timeouts = pool.get("requests_waiting", 0), pool.get("requests_errors", 0)
    yield Gauge("tracer_pool_waiting", "Requests that wait for a connection.", waiting)
    yield Counter("tracer_pool_timeouts", "Requests that got no connection in time.", timeouts)


async def _of_recorder(recorder: Recorder) -> AsyncIterator[Metric]:
    counts = recorder.counts
    events = Counter(
        "tracer_recorder_events", "Events of the server's own agents.", labels=["outcome"]
    )
    for outcome in ("stored", "refused", "spooled", "drained", "dropped"):
        events.add_metric([outcome], getattr(counts, outcome))
    yield events
    try:
        waiting = await recorder.spool.count()
    except (sqlite3.Error, OSError):
        return
    yield Gauge("tracer_spool_events", "Events that wait in the spool.", waiting)


async def _of_database(parts: Parts, answer_seconds: float) -> AsyncIterator[Metric]:
    leases = projectors = None
    try:
        await parts.reader.check()
        if parts.stores is not None:
            async with asyncio.timeout(answer_seconds):
                leases = await parts.stores.count_leases()
        if parts.backlog is not None:
            async with asyncio.timeout(answer_seconds):
                projectors = await parts.backlog.count_projectors()
    except (StoreUnavailable, SchemaOutOfDate, TimeoutError):
        pass  # `/readyz` reports it
    if parts.backlog is not None:
        yield Gauge(
            "tracer_projection_backlog_bytes",
            "Bytes of accepted spans that no projector has read yet, at most a minute ago.",
            parts.backlog.figures.size,
        )
        yield Gauge(
            "tracer_projection_lag_seconds",
            "How long the oldest run with such spans was overdue then.",
            parts.backlog.figures.lag,
        )
    if projectors is not None:
        yield Gauge("tracer_projectors", "Connected projectors of all servers.", projectors)
    if leases is not None:
        yield _by_state(
            "tracer_leases",
            "Recorders, and runs of which no recorder is known.",
            alive=leases.alive,
            expired=leases.expired,
        )


def _by_state(name: str, documentation: str, **values: float) -> Metric:
    family = Gauge(name, documentation, labels=["state"])
    for state, value in values.items():
        family.add_metric([state], value)
    return family
