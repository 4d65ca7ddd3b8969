"""The fields that all records take from their spans: times, status, errors, deterministic ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from tracer.otel.otlp.spans import ReadableSpan
from tracer.text import escape

RECORD = "tracer.record"
"""The attribute that contains the span's record, as a JSON object."""

RUN = "tracer.run"
"""The attribute of the root plan's span that holds the run, as a JSON object."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CANCELLED_ERRORS = (
    *("CancelledError", "AbortError"),
    *("TaskCanceledException", "OperationCanceledException"),
)
"""The endings of the names of exception types that mean a cancellation."""


@lru_cache(maxsize=4096)  # called several times for each span
def root_plan_id(trace_id: bytes) -> UUID:
    """Return the id of a trace's run: the trace id itself."""
    return UUID(bytes=trace_id)


def run_ids_like(record_id: UUID) -> tuple[UUID, UUID]:
    """Return the least and greatest run id to which a record id made from a span may belong."""
    beginning = record_id.bytes[:6]
    return UUID(bytes=beginning + bytes(10)), UUID(bytes=beginning + b"\xff" * 10)


def moment(nanoseconds: int) -> datetime | None:
    """Return a time to the microsecond; None for 0, which means no time."""
    if nanoseconds == 0:
        return None
    return EPOCH + timedelta(0, 0, nanoseconds // 1000)


def stored(text: str | None) -> str | None:
    """Return text in stored form."""
    # Most text is plain ASCII, which is its own stored form.
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return escape(text)


def error_of(span: ReadableSpan) -> dict[str, str | None]:
    """Return the error of a span, from its last exception, its status and its attributes."""
    exceptions = [event.attributes for event in span.events if event.name == "exception"]
    exception: Any = exceptions[-1] if exceptions else {}

    def field(name: str) -> str | None:
        value = exception.get(f"exception.{name}")
        return stored(value) if isinstance(value, str) and value else None

    kind = field("type") or span.attributes.get("error.type")
    return {
        "error_type": stored(kind) if isinstance(kind, str) else None,
        "error_message": field("message") or stored(span.status_message) or None,
        "error_stack": field("stacktrace"),
    }
