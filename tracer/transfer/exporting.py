"""Exports a run as JSON lines, which contain all its stored data, or as OTLP for other tools.

The bytes depend only on the run: all stores export the same run as identical files.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from enum import StrEnum
from uuid import UUID

import orjson

from tracer.otel.export.record_spans import spans_of_records
from tracer.otel.otlp.encode import json_parts, protobuf_parts
from tracer.otel.otlp.logs import LogRecord
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.otel.otlp.spans import Span
from tracer.records.record_json import record_json, run_json
from tracer.store import WholeRun

SPAN = "span"
"""The `kind` of a line that is a span."""

LOG = "log"
"""The `kind` of a line that is a log record."""


class Format(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    OTLP = "otlp"
    OTLP_JSON = "otlp-json"


def exported(run: WholeRun, format: Format) -> Iterator[bytes]:
    """Yield the bytes of an export in small parts.

    Args:
        run: The run.
        format: The format.
    """
    return _FORMATS[format](run)


def exported_spans(run: WholeRun) -> Iterator[Span]:
    """Yield a run's spans, ordered by start time and span id.

    If the run arrived as spans, these are returned. If it arrived as events, its records are
    converted to spans; spans that other programs sent for the run are added.
    """
    if run.source == "spans":
        return iter(run.spans)
    return spans_of_records(run.run, run.is_agent_work, run.records, run.spans)


def _lines(run: WholeRun) -> Iterator[bytes]:
    yield run_json(run.run, run.source, run.is_agent_work) + b"\n"
    for kind, part in run.records.items():
        for record in part:
            yield record_json(kind, record) + b"\n"
    for span in run.spans:
        yield _span_json(span) + b"\n"
    for log_record in run.logs:
        yield _log_json(run.run.root_plan_id, log_record) + b"\n"


def _span_json(span: Span) -> bytes:
    """Return a span as a line of JSON.

    The line contains the span as base64 of protobuf, because OTLP/JSON cannot hold unknown fields.
    """
    return orjson.dumps(
        {
            "kind": SPAN,
            "rootPlanId": root_plan_id(span.trace_id),
            "spanId": span.span_id.hex(),
            "resourceSpans": base64.b64encode(span.body).decode(),
        }
    )


def _log_json(run_id: UUID, record: LogRecord) -> bytes:
    return orjson.dumps(
        {
            "kind": LOG,
            "rootPlanId": run_id,
            "resourceLogs": base64.b64encode(record.sent).decode(),
        }
    )


_FORMATS: dict[Format, Callable[[WholeRun], Iterator[bytes]]] = {
    Format.JSONL: _lines,
    Format.OTLP: lambda run: protobuf_parts(exported_spans(run), run.logs),
    Format.OTLP_JSON: lambda run: json_parts(exported_spans(run), run.logs),
}
