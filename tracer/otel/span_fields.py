"""What records take from a span whatever it is: times, status, errors, deterministic ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid8

from tracer.otel.spans import STATUS_ERROR, ReadableSpan, Span
from tracer.records import RECORDS, Kind
from tracer.status import Reason, Status
from tracer.text import escape
from tracer.versions import Fields

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CANCELLED_ERRORS = (
    *("CancelledError", "AbortError"),
    *("TaskCanceledException", "OperationCanceledException"),
)
"""How the types of exceptions end that cancel work."""
CANCELLATIONS = ("strands.cancellation.type",)
"""Attributes that only spans of what was cancelled have; their status may be unset."""


@lru_cache(maxsize=4096)  # asked for several times of each span
def root_plan_id(trace_id: bytes) -> UUID:
    """Return the id of a trace's run: the trace id itself."""
    return UUID(bytes=trace_id)


class RecordIds(dict[Kind, "_IdsOfKind"]):
    """The ids of the records that the spans of one trace become: by kind, then by span id.

    They are UUIDv8 (RFC 9562): six bytes of the trace id, so that in indexes by id a trace's
    records lie next to each other; then a hash of trace id, kind and span id. With an empty span
    id it is the id of the trace's own record.
    """

    def __init__(self, trace_id: bytes) -> None:
        super().__init__({kind: _IdsOfKind(trace_id, kind) for kind in RECORDS})


class _IdsOfKind(dict[bytes, UUID]):
    def __init__(self, trace_id: bytes, kind: Kind) -> None:
        super().__init__()
        self._beginning = trace_id[:6]
        self._hashed = trace_id + kind.value.encode()

    def __missing__(self, span_id: bytes) -> UUID:
        made = uuid8(self._beginning + sha256(self._hashed + span_id).digest()[:10])
        self[span_id] = made
        return made


def moment(nanoseconds: int) -> datetime | None:
    """Return a time to the microsecond; None for 0, which is no time."""
    if nanoseconds == 0:
        return None
    return EPOCH + timedelta(0, 0, nanoseconds // 1000)


def stored(text: str | None) -> str | None:
    """Return text in stored form."""
    # Most text is plain ASCII, which is its own stored form.
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return escape(text)


def lifecycle(span: Span, failure: Reason | None = None, failed: bool = False) -> Fields:
    """Return the status of a span with its times and what went wrong.

    Args:
        span: The span; one without an end is still running.
        failure: The reason to give where it failed.
        failed: Whether it failed whatever its status says.
    """
    start, end = span.start, span.end
    if end == 0:
        return {"started_at": moment(start), "finished_at": None, "status": Status.RUNNING}
    fields = {"started_at": moment(start), "finished_at": moment(end), "status": Status.SUCCEEDED}
    cancelled = next((name for name in CANCELLATIONS if name in span.attributes), None)
    if cancelled is not None:
        kind = span.attributes[cancelled]
        error_type = stored(kind) if isinstance(kind, str) else None
        return {**fields, "status": Status.CANCELLED, **error_of(span), "error_type": error_type}
    if span.status_code != STATUS_ERROR and not failed:
        return fields
    error = error_of(span)
    kind = error.get("error_type") or ""
    if kind.rpartition(".")[2] in CANCELLED_ERRORS:
        return {**fields, "status": Status.CANCELLED, **error}
    reason = failure.value if failure else None
    return {**fields, "status": Status.FAILED, "reason": reason, **error}


def error_of(span: ReadableSpan) -> dict[str, str | None]:
    """Return the error of a span: its last exception, else its status and attributes."""
    exceptions = [event.attributes for event in span.events if event.name == "exception"]
    said: Any = exceptions[-1] if exceptions else {}

    def field(name: str) -> str | None:
        value = said.get(f"exception.{name}")
        return stored(value) if isinstance(value, str) and value else None

    kind = field("type") or span.attributes.get("error.type")
    return {
        "error_type": stored(kind) if isinstance(kind, str) else None,
        "error_message": field("message") or stored(span.status_message) or None,
        "error_stack": field("stacktrace"),
    }
