"""Suppress OpenTelemetry's tracing of Tracer's own requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context as otel_context

SUPPRESSED = ("suppress_instrumentation", otel_context._SUPPRESS_INSTRUMENTATION_KEY)
"""The keys that instrumentations look for, as in `opentelemetry.instrumentation.utils`."""


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Make OpenTelemetry's instrumentations record nothing inside a `with` block."""
    context = otel_context.get_current()
    for key in SUPPRESSED:
        context = otel_context.set_value(key, True, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)
