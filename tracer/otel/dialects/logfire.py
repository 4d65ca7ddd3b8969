"""Logfire: log lines sent as spans, and pending spans, which announce a span before it ends.

A pending span has its own id. Its parent is the announced span, whose real parent is in an
attribute of the pending span.
"""

from __future__ import annotations

from tracer.otel.otlp.spans import SPAN_ID_BYTES, ReadableSpan

_TYPE = "logfire.span_type"
_PARENT = "logfire.pending_parent_id"


def is_pending(span: ReadableSpan) -> bool:
    """Return whether it announces another span."""
    return span.attributes.get(_TYPE) == "pending_span" and span.parent_span_id is not None


def is_log(span: ReadableSpan) -> bool:
    """Return whether it is a log line rather than a span."""
    return span.attributes.get(_TYPE) == "log"


def announced_parent(pending: ReadableSpan) -> bytes | None:
    """Return the parent's id of the span that `pending` announces; None if it has no parent."""
    value = pending.attributes.get(_PARENT)
    try:
        span_id = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return None
    return span_id if len(span_id) == SPAN_ID_BYTES and any(span_id) else None
