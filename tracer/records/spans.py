"""Spans and log records as Python objects, and the merging of two versions of a span.

Treat spans as immutable. Their classes are not frozen only because creating a frozen instance takes
five times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Attributes = Mapping[str, Any]
"""Attributes as plain Python: text, numbers, bytes, lists, dictionaries, None."""

STATUS_ERROR = 2
"""The status code of a failure. After a success, some emitters send `unset` and others `ok`."""

SPAN_ID_BYTES = 8
TRACE_ID_BYTES = 16


@dataclass(slots=True)
class SpanEvent:
    """An event of a span, such as an exception. In older conventions, messages are events, too."""

    name: str
    time: int
    attributes: Attributes


class ReadableSpan(Protocol):
    """The fields of a span that dialects and `error_of` read."""

    @property
    def parent_span_id(self) -> bytes | None:
        """The id of the span's parent; None for a root span."""

    @property
    def start(self) -> int:
        """When the span began, in nanoseconds since 1970."""

    @property
    def name(self) -> str:
        """The name of the span."""

    @property
    def scope(self) -> str:
        """The name of the span's instrumentation scope."""

    @property
    def attributes(self) -> Attributes:
        """The attributes of the span."""

    @property
    def events(self) -> tuple[SpanEvent, ...]:
        """The events of the span, in the order in which they were sent."""

    @property
    def status_message(self) -> str:
        """The message of the span's status."""


@dataclass(slots=True)
class SpanLink:
    """A reference to another span of the same or another trace."""

    trace_id: bytes
    span_id: bytes
    attributes: Attributes


@dataclass(slots=True)
class Span:
    """One version of a span. Times are nanoseconds since 1970; an end of 0 means no end yet."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes | None
    name: str
    kind: int
    start: int
    end: int
    status_code: int
    status_message: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    links: tuple[SpanLink, ...]
    resource: Attributes
    scope: str
    scope_version: str
    body: bytes
    """The span with its resource and scope, as a serialized `ResourceSpans` without other spans."""

    @property
    def key(self) -> tuple[bytes, bytes]:
        """The trace id and the span id, which together identify the span."""
        return self.trace_id, self.span_id

    @property
    def order(self) -> tuple[int, bytes]:
        """The sort key of spans: start and span id."""
        return self.start, self.span_id


@dataclass(slots=True)
class LogRecord:
    """One log record."""

    trace_id: bytes
    span_id: bytes | None
    time: int
    """When the event happened, or else when it was observed; 0 if neither is known."""
    name: str
    """The name of the event: the attribute `event.name`, or else the field `event_name`, or else
    the body if it is text."""
    body: Any
    attributes: Attributes
    resource: Attributes
    scope: str
    sent: bytes
    """The record with its resource and scope, as a serialized `ResourceLogs`. Records with equal
    bytes are duplicates."""

    @property
    def order(self) -> tuple[int, bytes]:
        """The sort key of log records: time, then bytes."""
        return self.time, self.sent


@dataclass(frozen=True, slots=True)
class TraceSpans:
    """The accepted spans and log records of one trace from one request, as stores receive them."""

    trace_id: bytes
    """The trace id; for log records without one, their session run's id (`session_run_id`)."""
    message: bytes
    """A stored message (`tracer.otel.otlp.spans`) that contains only these items."""
    count: int
    """The number of spans and log records in it, at least one."""


def newer(one: Span, other: Span) -> Span:
    """Return the version of a span that ended later.

    If both ended at the same time, the version with the greater bytes is returned.
    """
    return max(one, other, key=lambda span: (span.end, span.body))


def merge_spans(spans: Iterable[Span]) -> dict[tuple[bytes, bytes], Span]:
    """Return one version of each span, by trace id and span id.

    The result does not depend on the order of the versions.
    """
    merged: dict[tuple[bytes, bytes], Span] = {}
    for span in spans:
        earlier = merged.get(span.key)
        merged[span.key] = span if earlier is None else newer(earlier, span)
    return merged
