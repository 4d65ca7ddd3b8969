"""Spans in the forms in which exporters send them and stores accept them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracer.otel.otlp.spans import encode_protobuf, json_of
from tracer.records.spans import LogRecord, Span, TraceSpans


def traces_of(spans: Iterable[Span]) -> Sequence[TraceSpans]:
    """Group spans by trace, in the form that stores accept.

    The traces are in the order of their first spans.
    """
    by_trace: dict[bytes, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    return [
        TraceSpans(trace_id, encode_protobuf(items), len(items))
        for trace_id, items in by_trace.items()
    ]


def encode_json(spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> bytes:
    """Return spans and log records as an OTLP/JSON document.

    Ids are hexadecimal, enums are numbers, and 64-bit integers are text. The document has the key
    `resourceLogs` only if there are log records.
    """
    records = b",".join(map(json_of, logs))
    of_logs = b',"resourceLogs":[%b]' % records if records else b""
    return b'{"resourceSpans":[%b]%b}' % (b",".join(map(json_of, spans)), of_logs)
