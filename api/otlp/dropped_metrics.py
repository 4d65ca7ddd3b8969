"""OTLP requests with metrics. Their data points are counted and dropped.

The server accepts these requests so that exporters that send all signals do not report errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tracer.otel.otlp.decode_json import load_json
from tracer.otel.otlp.request_items import Decoded, UndecodableTraces

NOTICE = "This server stores traces and logs. It accepts metrics and drops them."

_NO_METRICS = "The body is not an OTLP metrics request."
_DATA = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


def count_protobuf(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the number of data points in a serialized `ExportMetricsServiceRequest`.

    Raises:
        UndecodableTraces: The body is not such a message.
        TooLarge: Decoding the body takes more than `max_size` bytes of memory.
    """
    decoded = _sized(body, max_size)
    try:
        request = ExportMetricsServiceRequest.FromString(body)
    except DecodeError as error:
        raise UndecodableTraces(_NO_METRICS) from error
    for resource_metrics in request.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                decoded.count += 0 if kind is None else len(getattr(metric, kind).data_points)
    return decoded


def count_json(body: bytes, max_size: int | None = None) -> Decoded:
    """Return the number of data points in an OTLP/JSON request.

    Raises:
        UndecodableTraces: The body is not such a request.
        TooLarge: Decoding the body takes more than `max_size` bytes of memory.
    """
    decoded = _sized(body, max_size)
    request = load_json(body)
    if not isinstance(request, dict):
        raise UndecodableTraces(_NO_METRICS)
    for resource_metrics in _items(request, "resourceMetrics"):
        for scope_metrics in _items(resource_metrics, "scopeMetrics"):
            for metric in _items(scope_metrics, "metrics"):
                data = [metric.get(name) for name in _DATA]
                decoded.count += sum(
                    len(list(_items(each, "dataPoints"))) for each in data if isinstance(each, dict)
                )
    return decoded


def _sized(body: bytes, max_size: int | None) -> Decoded:
    decoded = Decoded(max_size)
    decoded.grow(_COPIES * len(body))
    return decoded


_COPIES = 3
"""About how many copies of a body are in memory while it is counted."""


def _items(parent: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    items = parent.get(name)
    if items is None:
        return
    if not isinstance(items, (list, tuple)) or not all(isinstance(each, dict) for each in items):
        raise UndecodableTraces(_NO_METRICS)
    yield from items
