"""The server's own spans, exported if OpenTelemetry's environment variables name a destination.

Each request gets a span, with a child span for each read or write of the store. The spans contain
no data that clients send or that the store contains.

Requests that export the spans of a Tracer server get no spans themselves. The server recognises
them by their `User-Agent`. Otherwise a server that exports its spans to itself would create new
spans with each export, and would never stop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tracer.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

AGENT = "tracer-server"
"""The `User-Agent` of a server's exports."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTERS = "OTEL_TRACES_EXPORTER"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

FLUSH_SECONDS = 3.0
"""How long sending the last spans may take at shutdown."""

Side = TypeVar("Side")

Headers = Iterable[tuple[bytes, bytes]]


class SelfTracing:
    """Creates the server's own spans. Without an OpenTelemetry tracer, it creates none."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer

    def of_request(
        self, method: str, scheme: str, headers: Headers
    ) -> AbstractContextManager[Span | None]:
        """Return a context manager that yields a request's span, or None if it gets no span.

        Args:
            method: The HTTP method.
            scheme: `http` or `https`.
            headers: The request's headers. A `traceparent` among them names the parent span.
        """
        if self._tracer is None:
            return nullcontext()
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        if carrier.get("user-agent") == AGENT:
            return nullcontext()
        return self._tracer.start_as_current_span(
            method,
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.SERVER,
            {"http.request.method": method, "url.scheme": scheme},
            record_exception=False,  # its text may quote the request
            set_status_on_exception=False,
        )

    def around(self, side: Side) -> Side:
        """Wrap a store's reader or writer, so that each call in a request creates a child span."""
        return side if self._tracer is None else cast("Side", _Spanned(side, self._tracer))


def end_request(span: Span, method: str, route: str | None, status: int) -> None:
    """Set the outcome of a request on its span.

    Args:
        span: The span of the request.
        method: The HTTP method.
        route: The template of the path; None if no route matched.
        status: The status of the response; 0 without a response.
    """
    if route is not None:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    if status:
        span.set_attribute("http.response.status_code", status)
    if not status or status >= 500:
        span.set_attribute("error.type", str(status or "_OTHER"))
        span.set_status(StatusCode.ERROR)


class _Spanned:
    """Wraps a reader or writer of a store, and creates a span for each call in a request."""

    def __init__(self, side: object, tracer: Tracer) -> None:
        self._side = side
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._side, name)
        if not inspect.iscoroutinefunction(method) or not trace.get_current_span().is_recording():
            return method

        async def spanned(*args: Any, **options: Any) -> Any:
            with self._tracer.start_as_current_span(
                f"store {name}",
                attributes={"db.system.name": "postgresql", "db.operation.name": name},
                kind=SpanKind.CLIENT,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    return await method(*args, **options)
                except Exception as error:
                    span.set_attribute("error.type", type(error).__qualname__)
                    span.set_status(StatusCode.ERROR)
                    raise

        return spanned


def wanted_exporter(environment: Mapping[str, str]) -> str | None:
    """Return the name of the exporter that OpenTelemetry's environment variables select.

    Return None if neither an exporter nor an endpoint is set, or if `OTEL_SDK_DISABLED` is true.
    Other variables alone have no effect, because they may be meant for an agent.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    names = environment.get(EXPORTERS, "").strip().lower()
    if not names and any(environment.get(each) for each in ENDPOINTS):
        names = "otlp"
    if names in ("", "none"):
        return None
    if names != "otlp":
        return names
    protocols = [environment[each] for each in PROTOCOLS if environment.get(each)]
    is_grpc = protocols[:1] == ["grpc"]
    return "otlp_proto_grpc" if is_grpc else "otlp_proto_http"


@asynccontextmanager
async def self_tracing(environment: Mapping[str, str]) -> AsyncIterator[SelfTracing]:
    """Yield the `SelfTracing` of this process. At the end, export the remaining spans.

    Args:
        environment: The environment of the process; the OpenTelemetry SDK reads it, too.

    Raises:
        ConfigurationError: The environment names an exporter that is not installed.
    """
    name = wanted_exporter(environment)
    if name is None:
        yield SelfTracing()
        return
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter(name)
    except ImportError as error:
        variable = next(each for each in (EXPORTERS, *ENDPOINTS) if environment.get(each))
        raise ConfigurationError(
            f"{variable} turns on the server's own spans, but the exporter {name!r} is not "
            "installed. Install it; or send the spans over HTTP: `pip install "
            f"'tracer-lineage[server]'` and set {PROTOCOLS[-1]} to http/protobuf; or unset "
            f"{variable}."
        ) from error
    resource = Resource.create(
        {} if environment.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: AGENT}
    )
    # Not the global provider: another program may trace the server's agents with it.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield SelfTracing(provider.get_tracer("tracer"))
    finally:
        stopping = Thread(target=provider.shutdown, daemon=True)  # the collector may not answer
        stopping.start()
        await asyncio.to_thread(stopping.join, FLUSH_SECONDS)


def _exporter(name: str) -> SpanExporter:
    """Return a new span exporter.

    Raises:
        ImportError: No exporter of that name is installed.
    """
    exporters = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not exporters:
        raise ImportError(name)
    kind = next(iter(exporters)).load()
    headers = {"headers": {"user-agent": AGENT}} if name.startswith("otlp") else {}
    return cast("SpanExporter", kind(**headers))
