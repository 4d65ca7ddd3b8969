"""Decoded and redacted spans as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.otel.sent import traces_of
from tracer.otel.otlp import Decoded, redacted_traces
from tracer.otel.otlp.blocks import sent_spans
from tracer.records.masks import PayloadPolicy
from tracer.records.spans import Span, TraceSpans
from tracer.redaction import Redaction


def spans_in(decoded: Decoded) -> list[Span]:
    """Return the accepted spans in the order of the request."""
    indexes_and_spans = zip(decoded.indexes, spans_of_traces(decoded.traces), strict=True)
    return [span for _, span in sorted(indexes_and_spans, key=lambda each: each[0])]


def spans_of_traces(traces: Iterable[TraceSpans]) -> list[Span]:
    """Return the spans as they were sent, in the order of the traces."""
    return [span for trace in traces for span in sent_spans(trace.message)]


def redacted_spans(
    redaction: Redaction, spans: Sequence[Span], policy: PayloadPolicy = PayloadPolicy.KEEP
) -> list[Span]:
    """Return spans as a store keeps them, grouped by trace."""
    return spans_of_traces(redacted_traces(traces_of(spans), redaction, policy))
