"""Spans and log records as Python objects, and the merging of two versions of a span.

Treat spans as immutable. Their classes are not frozen only because creating a frozen instance takes
five times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

Attributes = Mapping[str, Any]
"""Attributes as plain Python: text, numbers, bytes, lists, dictionaries, None."""

STATUS_OK, STATUS_ERROR = 1, 2
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
class Contents:
    """The spans and log records of some blocks of a run."""

    spans: list[Span]
    """The spans, sorted by start and span id. If the blocks contain several versions of a span, one
    is returned (`newest`)."""
    logs: list[LogRecord]
    """The log records, sorted by time, without duplicates."""
    unreadable: int
    """The number of blocks that are damaged."""


@dataclass(frozen=True, slots=True)
class TraceSpans:
    """The accepted spans and log records of one trace from one request, as stores receive them."""

    trace_id: bytes
    """The trace id; for log records without one, their session run's id (`session_run_id`)."""
    message: bytes
    """A stored message (`tracer.otel.otlp.spans`) that contains only these items."""
    count: int
    """The number of spans and log records in it, at least one."""


class _Version(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


VersionT = TypeVar("VersionT", bound=_Version)


def spans_with_one_id(versions: Sequence[VersionT]) -> list[list[VersionT]]:
    """Divide all that was sent under one span id into spans, the earliest-started first.

    Two items are different spans if both have ended and their starts differ. All other items are
    versions of one span.
    """
    starts = sorted({version.start for version in versions if version.end})
    if len(starts) < 2:
        return [list(versions)]
    by_start: dict[int, list[VersionT]] = {start: [] for start in starts}
    for version in versions:
        by_start.get(version.start, by_start[starts[0]]).append(version)
    return list(by_start.values())


def id_of_later(span_id: bytes, start: int) -> bytes:
    """Return the id of a span whose id was first used by an earlier-started span."""
    return blake2b(span_id + start.to_bytes(8, "big"), digest_size=SPAN_ID_BYTES).digest()


def newest(versions: Iterable[Span]) -> Span:
    """Return the version of a span that ended last; of those, the one with the greatest bytes."""
    return max(versions, key=lambda each: (each.end, each.body))


def merge_spans(spans: Iterable[Span]) -> dict[tuple[bytes, bytes], Span]:
    """Return one version of each span, by trace id and span id.

    If different spans have one id, all but the earliest-started get another id (`id_of_later`). The
    result does not depend on the order of the versions.
    """
    by_key: dict[tuple[bytes, bytes], list[Span]] = {}
    for span in spans:
        by_key.setdefault(span.key, []).append(span)
    merged: dict[tuple[bytes, bytes], Span] = {}
    for versions in by_key.values():
        for number, of_span in enumerate(spans_with_one_id(versions)):
            span = newest(of_span)
            if number:
                span = replace(span, span_id=id_of_later(span.span_id, span.start))
            merged[span.key] = span
    return merged
