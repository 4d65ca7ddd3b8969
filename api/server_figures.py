"""What a server is, read when Prometheus asks: its pool, its recorder, its reaper, its database."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tracer.assembly import Parts
from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.recorder.recorder import Recorder
from tracer.storage.backlog import BacklogFigures
from tracer.storage.migrate import head
from tracer.storage.postgres_leases import PostgresReaper
from tracer.storage.project_stores import ProjectStores
from tracer.storage.projectors import ProjectionCounts
from tracer.storage.pruner import Pruner
from tracer.storage.reaper import Reaper
from tracer.storage.rollups import RollupJob

ANSWER_SECONDS = 2.0
"""How long counting may take by default: Prometheus does not wait for long."""


async def server_figures(parts: Parts, answer_seconds: float = ANSWER_SECONDS) -> list[Metric]:
    """Return what there is to tell of a server; what can't be read now is left out.

    Args:
        parts: The server's.
        answer_seconds: How long the database may take to count leases.
    """
    told = [_labelled("tracer_build_info", "1. The labels say what runs.", _BUILD, _build())]
    if parts.stores is not None:
        told += _of_stores(parts.stores)
    if parts.reaper is not None:
        told += _of_reaper(parts.reaper)
    if parts.leases is not None:
        told += _of_leases(parts.leases)
    if parts.pruner is not None:
        told += _of_pruner(parts.pruner)
    if parts.rollup_job is not None:
        told += _of_rollups(parts.rollup_job)
    if parts.projections is not None:
        told += _of_projections(parts.projections)
    if parts.recorder is not None:
        told += [each async for each in _of_recorder(parts.recorder)]
    return told + [each async for each in _of_database(parts, answer_seconds)]


_BUILD = ("version", "schema_revision")


@functools.cache
def _build() -> dict[tuple[str, ...], float]:
    return {(version("tracer"), head()): 1}


def _of_stores(stores: ProjectStores) -> Iterator[Metric]:
    figures = stores.figures()
    pool = figures.pool
    used = pool["pool_size"] - pool["pool_available"]
    yield _labelled(
        "tracer_pool_connections",
        "Connections to the database that are open.",
        ("state",),
        {("used",): used, ("idle",): pool["pool_available"]},
    )
    yield GaugeMetricFamily(
        "tracer_pool_connections_max", "How many there may be.", pool["pool_max"]
    )
    yield GaugeMetricFamily(
        "tracer_pool_waiting", "Who waits for a connection.", pool.get("requests_waiting", 0)
    )
    yield CounterMetricFamily(
        "tracer_pool_timeouts",
        "Who waited for a connection in vain.",
        pool.get("requests_errors", 0),
    )
    yield CounterMetricFamily(
        "tracer_pool_connections_lost", "Connections that broke.", pool.get("connections_lost", 0)
    )
    yield GaugeMetricFamily(
        "tracer_writes_waiting", "Writes that wait to be written.", figures.writes_waiting
    )
    yield GaugeMetricFamily(
        "tracer_live_clients", "Clients that watch a run as it happens.", figures.watchers
    )


def _of_reaper(reaper: Reaper) -> Iterator[Metric]:
    if reaper.looked_at is not None:
        yield GaugeMetricFamily(
            "tracer_reaper_last_look_timestamp_seconds",
            "When the reaper looked last, by the database's clock.",
            reaper.looked_at.timestamp(),
        )
    yield CounterMetricFamily(
        "tracer_reaper_failures", "How often the reaper could not look.", reaper.failures
    )


def _of_leases(leases: PostgresReaper) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "tracer_reaper_abandoned",
        "How often a recorder was found dead that had left something open in a run.",
        leases.abandoned,
    )
    yield CounterMetricFamily(
        "tracer_reaper_cleared",
        "How often a recorder came back that had been found dead in a run.",
        leases.cleared,
    )


def _of_pruner(pruner: Pruner) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "tracer_pruned_runs", "Runs that their projects do not keep any longer.", pruner.done.runs
    )
    yield CounterMetricFamily(
        "tracer_pruned_records",
        "Records and spans of those.",
        pruner.done.records + pruner.done.spans,
    )


def _of_rollups(job: RollupJob) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "tracer_summed_stretches",
        "Hours whose tool calls were summed up for statistics, again or for the first time.",
        job.hours,
    )
    yield CounterMetricFamily(
        "tracer_summariser_failures",
        "Failed attempts to sum up hours.",
        job.failures,
    )


def _of_projections(counts: ProjectionCounts) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "tracer_projections", "Projections of runs by this server's projectors.", counts.runs
    )
    yield CounterMetricFamily(
        "tracer_projection_seconds", "The time that these took.", counts.seconds
    )
    yield CounterMetricFamily(
        "tracer_projection_failures",
        "Projections that failed, and projectors that ended while they worked.",
        counts.failures,
    )


def _of_backlog(figures: BacklogFigures, projectors: int) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "tracer_projection_backlog_bytes",
        "Bytes of accepted spans that no projector has read yet.",
        figures.size,
    )
    yield GaugeMetricFamily(
        "tracer_projection_backlog_runs", "Runs that they belong to.", figures.runs
    )
    yield GaugeMetricFamily(
        "tracer_projection_lag_seconds", "How long the oldest of these is overdue.", figures.lag
    )
    yield GaugeMetricFamily(
        "tracer_projectors", "Projectors of all servers that are connected.", projectors
    )


async def _of_recorder(recorder: Recorder) -> AsyncIterator[Metric]:
    counts = recorder.counts
    events = CounterMetricFamily(
        "tracer_recorder_events",
        "What became of the events that the server's own agents recorded.",
        labels=["outcome"],
    )
    for outcome in ("stored", "refused", "spooled", "drained", "dropped"):
        events.add_metric([outcome], getattr(counts, outcome))
    yield events
    yield CounterMetricFamily(
        "tracer_recorder_write_failures",
        "Their writes that the store failed, or did not answer in time.",
        counts.write_failures,
    )
    try:
        waiting = await recorder.spool.count()
    except (sqlite3.Error, OSError):
        return
    yield GaugeMetricFamily("tracer_spool_events", "Events that wait in the spool.", waiting)
    yield GaugeMetricFamily(
        "tracer_spool_bytes", "The size of the spool's file.", recorder.spool.size()
    )


async def _of_database(parts: Parts, answer_seconds: float) -> AsyncIterator[Metric]:
    is_ready, leases, waiting = True, None, None
    try:
        await parts.reader.check()
        if parts.stores is not None:
            async with asyncio.timeout(answer_seconds):
                leases = await parts.stores.count_leases()
        if parts.backlog is not None:
            async with asyncio.timeout(answer_seconds):
                waiting = await parts.backlog.read(), await parts.backlog.count_projectors()
    except (StoreUnavailable, SchemaOutOfDate, TimeoutError):
        is_ready = False
    yield GaugeMetricFamily(
        "tracer_ready", "1: the database answers, and its schema is current.", float(is_ready)
    )
    if waiting is not None:
        for metric in _of_backlog(*waiting):
            yield metric
    if leases is not None:
        yield _labelled(
            "tracer_leases",
            "Recorders, and runs of which no recorder is known.",
            ("state",),
            {("alive",): leases.alive, ("expired",): leases.expired},
        )


def _labelled(
    name: str, documentation: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for given, value in values.items():
        family.add_metric(given, value)
    return family
