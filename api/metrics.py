"""The counters of a server, for Prometheus. `docs/guides/operations.md` lists them.

Clients cannot choose the values of labels, so they cannot make the number of time series grow. The
values are route templates, methods, statuses and error codes. The only exception is
`tracer_unread_spans`, whose label is an instrumentation scope: at most 100 names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric

from tracer.store import Refusal

MEDIA_TYPE = CONTENT_TYPE_LATEST

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the buckets of all duration histograms, in seconds."""

RequestLabels = tuple[str, str, str]
"""A request's method, the template of its path, and the status of its answer."""


class Metrics:
    """The counters of one server.

    `api.routes.health.server_metrics` reads the server's current state, such as open connections.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory, processor time, open files
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=SECONDS)
        self.requests = counter(
            "tracer_http_requests", "Requests that were answered.", ["method", "route", "status"]
        )
        self.request_seconds = histogram(
            "tracer_http_request_duration_seconds",
            "Duration of responses, without streams of live updates.",
            ["method", "route"],
        )
        self.requests_in_progress = Gauge(
            "tracer_http_requests_in_progress",
            "Requests in progress, including streams.",
            registry=registry,
        )
        self.problems = counter(
            "tracer_http_problems",
            "Requests that were answered with a problem, by code.",
            ["code"],
        )
        self.stored = counter(
            "tracer_ingest_stored",
            "Events, spans and log records that clients sent and that were committed.",
            ["source"],
        )
        self.refused = counter(
            "tracer_ingest_refused",
            "Events, spans and log records that clients sent and that were rejected, by code.",
            ["source", "code"],
        )
        self.commit_seconds = histogram(
            "tracer_commit_duration_seconds",
            "Duration of writing a batch of events, or of spans and log records.",
            ["written"],
        )

        # Looking up a label costs as much as counting.
        self._requests_of = cache(self.requests.labels)
        self._seconds_of = cache(self.request_seconds.labels)
        self._stored_by = cache(self.stored.labels)

    def note_request(
        self, labels: RequestLabels, seconds: float | None, problem: str | None
    ) -> None:
        """Count a request.

        Args:
            labels: The method, the route template and the status.
            seconds: The duration of the response. None for a stream, because its client decides how
                long it lasts.
            problem: The error code, if the response is an error.
        """
        self._requests_of(*labels).inc()
        if seconds is not None:
            self._seconds_of(*labels[:2]).observe(seconds)
        if problem is not None:
            self.problems.labels(problem).inc()

    def note_ingest(self, source: str, stored: int, refused: Sequence[Refusal]) -> None:
        """Count the stored and rejected items of a request.

        Args:
            source: `events`, `spans` or `logs`.
            stored: The number of items that were committed.
            refused: The rejected items.
        """
        self._stored_by(source).inc(stored)
        for each in refused:
            self.refused.labels(source, each.code).inc()

    def note_commit(self, written: str, seconds: float) -> None:
        """Count a committed batch of writes; see `tracer.storage.postgres.writer.OnCommit`."""
        self.commit_seconds.labels(written).observe(seconds)

    def text(self, figures: Iterable[Metric]) -> bytes:
        """Return all metrics in Prometheus's text format.

        Args:
            figures: Further metrics, which are read at each scrape.
        """
        return generate_latest(_Together(self.registry, figures))


class _Together:
    """A Prometheus collector that returns the counters and the metrics that a scrape has read."""

    def __init__(self, registry: CollectorRegistry, figures: Iterable[Metric]) -> None:
        self._registry = registry
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._figures
