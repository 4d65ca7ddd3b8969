"""The stored spans and log records of a run, all at once."""

from __future__ import annotations

from uuid import UUID

from tracer.otel.otlp.spans import merge_logs
from tracer.records.spans import LogRecord, Span, merge_spans
from tracer.store import TraceReader


async def read_spans(reader: TraceReader, run_id: UUID) -> list[Span]:
    """Return the spans of a run, sorted by start and span id, in one version each."""
    spans, _, _ = await _read(reader, run_id)
    return spans


async def read_logs(
    reader: TraceReader, run_id: UUID, *, with_sessions: bool = True
) -> list[LogRecord]:
    """Return the log records of a run, and those of its sessions without a trace id."""
    _, logs, _ = await _read(reader, run_id, with_sessions=with_sessions)
    return logs


async def count_unreadable(reader: TraceReader, run_id: UUID) -> int:
    """Return how many blocks of a run are damaged."""
    _, _, unreadable = await _read(reader, run_id)
    return unreadable


async def _read(
    reader: TraceReader, run_id: UUID, *, with_sessions: bool = False
) -> tuple[list[Span], list[LogRecord], int]:
    spans: list[Span] = []
    logs: list[LogRecord] = []
    unreadable = 0
    for part in await reader.list_span_parts(run_id, with_sessions=with_sessions):
        contents = await reader.read_span_part(part)
        assert contents is not None
        spans += contents.spans
        logs += contents.logs
        unreadable += contents.unreadable
    merged = sorted(merge_spans(spans).values(), key=lambda span: span.order)
    return merged, merge_logs(logs), unreadable
