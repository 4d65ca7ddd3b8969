"""Dialects: one file for each convention by which agents describe themselves in spans.

Each says of a span what it is and what its fields are. The first that knows a span speaks for it.
"""

from __future__ import annotations

from tracer.otel.dialects import (
    adk,
    claude_code,
    genai,
    logfire,
    mcp,
    openinference,
    openllmetry,
    vercel,
)
from tracer.otel.dialects.reading import WRAPPER, Reading
from tracer.otel.otlp.spans import ReadableSpan


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether the parent may tell what a span is."""
    return openinference.reads_parent(span)


def read_span(span: ReadableSpan, parent: ReadableSpan | None = None) -> Reading:
    """Return what a span is; a wrapper where no convention knows it.

    Args:
        span: The span.
        parent: The span above it, where it is known.
    """
    if logfire.is_log(span):
        return WRAPPER
    return (
        openinference.read(span, parent)
        or openllmetry.read(span)
        or vercel.read(span)
        or claude_code.read(span)
        or adk.read(span)
        or mcp.read(span)
        or genai.read(span)
        or WRAPPER
    )
