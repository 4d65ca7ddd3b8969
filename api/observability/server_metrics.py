"""Read the state of a server at each scrape: pool, recorder, jobs, projections and database."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version

from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric

from tracer.assembly import Parts
from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.recorder.recorder import Recorder
from tracer.storage.postgres.administration.migrate import head
from tracer.storage.postgres.project_stores import ProjectStores

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
    metrics: list[Metric] = [build, *_of_jobs(parts)]
    if parts.stores is not None:
        metrics += _of_stores(parts.stores)
    if parts.recorder is not None:
        metrics += [each async for each in _of_recorder(parts.recorder)]
    return metrics + [each async for each in _of_database(parts, answer_seconds)]


_BUILD = ("version", "schema_revision")


@functools.cache
def _build() -> tuple[str, str]:
    return version("tracer-lineage-server"), head()


def _of_stores(stores: ProjectStores) -> Iterator[Metric]:
    figures = stores.figures()
    pool, idle = figures.pool, figures.pool["pool_available"]
    used = pool["pool_size"] - idle
    yield _by_state(
        "tracer_pool_connections",
        "Open connections to the database.",
        used=used,
        idle=idle,
    )
    yield Gauge("tracer_pool_connections_max", "The largest number of these.", pool["pool_max"])
    waiting, timeouts = pool.get("requests_waiting", 0), pool.get("requests_errors", 0)
    yield Gauge("tracer_pool_waiting", "Requests that wait for a connection.", waiting)
    yield Counter("tracer_pool_timeouts", "Requests that got no connection in time.", timeouts)
    lost = pool.get("connections_lost", 0)
    yield Counter("tracer_pool_connections_lost", "Connections that broke.", lost)
    yield Gauge("tracer_writes_waiting", "Queued writes.", figures.writes_waiting)
    yield Gauge("tracer_live_clients", "Clients of live streams of runs.", figures.watchers)


def _of_jobs(parts: Parts) -> Iterator[Metric]:
    if (reaper := parts.reaper) is not None:
        if reaper.looked_at is not None:
            yield Gauge(
                "tracer_reaper_last_look_timestamp_seconds",
                "Time of the reaper's last run, by the database's clock.",
                reaper.looked_at.timestamp(),
            )
        yield Counter("tracer_reaper_failures", "Failed runs of the reaper.", reaper.failures)
    if (leases := parts.leases) is not None:
        yield Counter(
            "tracer_reaper_abandoned",
            "How often a recorder's lease expired while it had open records in a run.",
            leases.abandoned,
        )
        yield Counter(
            "tracer_reaper_cleared",
            "How often a recorder whose lease had expired in a run sent a heartbeat again.",
            leases.cleared,
        )
    if parts.pruner is not None:
        done = parts.pruner.done
        yield Counter("tracer_pruned_runs", "Runs deleted after their retention.", done.runs)
        pruned = done.records + done.spans
        yield Counter("tracer_pruned_records", "Records and spans of these runs.", pruned)
    if (job := parts.rollup_job) is not None:
        intervals = "Hours whose tool calls were rolled up for statistics, repetitions included."
        yield Counter("tracer_rollup_intervals", intervals, job.hours)
        yield Counter("tracer_rollup_failures", "Failed roll-ups.", job.failures)
    if (counts := parts.projections) is not None:
        yield Counter("tracer_projections", "Projections of runs by this server.", counts.runs)
        yield Counter("tracer_projection_seconds", "Time spent on projections.", counts.seconds)
        yield Counter(
            "tracer_projection_failures",
            "Projections that failed, and projectors that died during one.",
            counts.failures,
        )


async def _of_recorder(recorder: Recorder) -> AsyncIterator[Metric]:
    counts = recorder.counts
    events = Counter(
        "tracer_recorder_events", "Events of the server's own agents.", labels=["outcome"]
    )
    for outcome in ("stored", "refused", "spooled", "drained", "dropped"):
        events.add_metric([outcome], getattr(counts, outcome))
    yield events
    yield Counter(
        "tracer_recorder_write_failures",
        "Writes of these agents that the store rejected or did not answer in time.",
        counts.write_failures,
    )
    try:
        waiting = await recorder.spool.count()
    except (sqlite3.Error, OSError):
        return
    yield Gauge("tracer_spool_events", "Events that wait in the spool.", waiting)
    yield Gauge("tracer_spool_bytes", "The size of the spool's file.", recorder.spool.size())


async def _of_database(parts: Parts, answer_seconds: float) -> AsyncIterator[Metric]:
    is_ready, leases, backlog = True, None, None
    try:
        await parts.reader.check()
        if parts.stores is not None:
            async with asyncio.timeout(answer_seconds):
                leases = await parts.stores.count_leases()
        if parts.backlog is not None:
            async with asyncio.timeout(answer_seconds):
                backlog = await parts.backlog.read(), await parts.backlog.count_projectors()
    except (StoreUnavailable, SchemaOutOfDate, TimeoutError):
        is_ready = False
    yield Gauge(
        "tracer_ready", "1: the database answers, and its schema is current.", float(is_ready)
    )
    if backlog is not None:
        figures, projectors = backlog
        yield Gauge(
            "tracer_projection_backlog_bytes",
            "Bytes of accepted spans that no projector has read yet.",
            figures.size,
        )
        yield Gauge("tracer_projection_backlog_runs", "Runs with such spans.", figures.runs)
        yield Gauge(
            "tracer_projection_lag_seconds", "How long the oldest of these is overdue.", figures.lag
        )
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
