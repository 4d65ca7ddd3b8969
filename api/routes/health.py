"""Routes that report the server's state: whether it is alive and ready, and its metrics."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from importlib.metadata import version
from math import nan

from fastapi import APIRouter, Response
from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric

from api.dependencies import AllParts, MetricsDep, Reading
from api.metrics import MEDIA_TYPE
from api.parts import Parts, Recorder
from api.problems import documented
from api.schemas import Health, Readiness
from tracer.clock import utc_now
from tracer.errors import NotAllowed, SchemaOutOfDate, StoreUnavailable
from tracer.search import SearchDirectory

TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}

router = APIRouter(tags=["health"])
"""Routes that need no caller."""

metrics_router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Answer 200 while the server's process is alive."""
    return Health(status="ok")


@router.get("/readyz", responses=documented(HTTPStatus.SERVICE_UNAVAILABLE))
async def readyz(parts: AllParts) -> Readiness:
    """Answer 200 if the database is reachable and its schema is current.

    A server is ready even without a projector, the process that converts spans to records. It
    accepts spans, and they are converted later. A server is also ready while its application is
    not: it records and reads, and rejects only requests to start runs.
    """
    await parts.reader.check()
    projectors = 0 if parts.backlog is None else await parts.backlog.count_projectors()
    is_walled = parts.stores is not None and await parts.stores.is_walled()
    return Readiness(
        status="ok",
        row_level_security="on" if is_walled else "off",
        projectors=projectors,
        application="none" if parts.application is None else parts.application.state,
        refused_tools=[] if parts.application is None else parts.application.refused_tools,
    )


@metrics_router.get(
    "/metrics",
    response_class=Response,
    responses={HTTPStatus.OK.value: TEXT, **documented(HTTPStatus.FORBIDDEN)},
)
async def read_metrics(parts: AllParts, caller: Reading, metrics: MetricsDep) -> Response:
    """Return the server's metrics in Prometheus's text format.

    The metrics cover all projects, so only keys of the server's own project may read them.
    """
    if caller.project_id != parts.project_id:
        raise NotAllowed("Only keys of the server's own project may read its metrics.")
    return Response(metrics.text(await server_metrics(parts)), media_type=MEDIA_TYPE)


ANSWER_SECONDS = 2.0
"""The default time limit of a database query. Prometheus does not wait long for the metrics."""


async def server_metrics(parts: Parts, answer_seconds: float = ANSWER_SECONDS) -> list[Metric]:
    """Return metrics of a server's current state. Metrics that cannot be read now are omitted.

    Args:
        parts: The server's components.
        answer_seconds: How long the database may take to answer a query.
    """
    build = Gauge(
        "tracer_build_info",
        "Always 1. The labels name the version.",
        labels=("version", "schema_revision"),
    )
    build.add_metric((version("tracer-lineage-server"), parts.schema_revision), 1)
    metrics: list[Metric] = [build]
    if parts.projections is not None:
        failures = Counter(
            "tracer_projection_failures",
            "Projections that failed, and projectors that died during one.",
            parts.projections.failures,
        )
        unread = Counter(
            "tracer_unread_spans",
            "Spans with token counts that no rule could read, by instrumentation scope.",
            labels=["scope"],
        )
        for scope, spans in sorted(parts.projections.unread.items()):
            unread.add_metric([scope], spans)
        metrics += [failures, unread]
    if parts.stores is not None:
        metrics += _of_pool(parts.stores.pool_stats())
        metrics += await asyncio.to_thread(_of_search, parts.stores.search.directory)
    if parts.recorder is not None:
        metrics += [each async for each in _of_recorder(parts.recorder)]
    return metrics + [each async for each in _of_database(parts, answer_seconds)]


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


def _of_search(directory: SearchDirectory | None) -> list[Metric]:
    state = directory and directory.state()
    projects = state.projects.values() if state else ()
    lag = (utc_now() - state.up_to).total_seconds() if state else nan
    size = directory.size() if directory else 0
    return [
        Gauge("tracer_search_lag_seconds", "Age of the last change that is indexed.", lag),
        Gauge("tracer_search_index_bytes", "Bytes of the search index.", size),
        _by_state(
            "tracer_search_earlier_runs",
            "Runs that existed before the search index: those in it, and the others.",
            indexed=sum(each.indexed for each in projects),
            waiting=sum(each.to_index for each in projects),
        ),
    ]


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
        yield Gauge(
            "tracer_runs_to_link",
            "Runs whose links to other runs were not up to date then.",
            parts.backlog.figures.to_link,
        )
        yield Gauge(
            "tracer_link_lag_seconds",
            "How long ago the first of these runs had changed then.",
            parts.backlog.figures.link_lag,
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
