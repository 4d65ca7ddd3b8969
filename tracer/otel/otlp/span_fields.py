"""Fields that every kind of record takes from its span: ids, times, status and errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from tracer.records.spans import ReadableSpan
from tracer.text import escape

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)  # called several times for each span
def root_plan_id(trace_id: bytes) -> UUID:
    """Return the run id of a trace, which is the trace id as a UUID."""
    return UUID(bytes=trace_id)


def run_ids_like(record_id: UUID) -> tuple[UUID, UUID]:
    """Return the least and the greatest id of the runs that may contain a record.

    The id of a record that was created from a span begins with the first six bytes of its run id.
    """
    beginning = record_id.bytes[:6]
    return UUID(bytes=beginning + bytes(10)), UUID(bytes=beginning + b"\xff" * 10)


def moment(nanoseconds: int) -> datetime | None:
    """Return a time, rounded down to microseconds; None for 0, which means no time."""
    if nanoseconds == 0:
        return None
    return EPOCH + timedelta(0, 0, nanoseconds // 1000)


def stored(text: str | None) -> str | None:
    """Return the stored form of a text (`tracer.text`)."""
    # Most text is plain ASCII, which is its own stored form.
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return escape(text)


def error_of(span: ReadableSpan) -> dict[str, str | None]:
    """Return the error type, message and stack of a span.

    They come from the span's last exception event, or else from its status and the attribute
    `error.type`. A value is None if it is missing.
    """
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
