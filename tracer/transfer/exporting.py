"""Exports a run as JSON lines, which Tracer's endpoints accept, or as OTLP for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from tracer.otel.export.record_spans import spans_of_records
from tracer.otel.otlp.encode import json_parts, protobuf_parts
from tracer.records.spans import Span
from tracer.store import WholeRun
from tracer.transfer.events_of_records import event_lines


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
    return spans_of_records(run.run, run.records, run.spans)


def _lines(run: WholeRun) -> Iterator[bytes]:
    """Yield the events of a run, or its spans and log records as one OTLP/JSON document a line."""
    if run.source != "spans":
        yield from event_lines(run.run, run.records)
        return
    for span in run.spans:
        yield b"".join(json_parts([span])) + b"\n"
    for record in run.logs:
        yield b"".join(json_parts([], [record])) + b"\n"


_FORMATS: dict[Format, Callable[[WholeRun], Iterator[bytes]]] = {
    Format.JSONL: _lines,
    Format.OTLP: lambda run: protobuf_parts(exported_spans(run), run.logs),
    Format.OTLP_JSON: lambda run: json_parts(exported_spans(run), run.logs),
}
