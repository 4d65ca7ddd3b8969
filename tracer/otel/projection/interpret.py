"""Read the spans of a run from stored OTLP messages.

Each span is decoded in one version, linked to its parent and read by its dialect. Only fields that
the projection needs are decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from tracer.otel.dialects import (
    announced_parent,
    complete_run,
    genai,
    is_pending,
    read_span,
    reads_parent,
    session_of,
)
from tracer.otel.dialects.run_spans import SlimSpan, cut_circles
from tracer.otel.otlp.logs import logs_in, logs_of, merge_logs, session_run_id
from tracer.otel.otlp.protobuf import StoredMessage
from tracer.otel.otlp.protobuf_spans import Envelope, attributes_of, events_of
from tracer.records.masks import MASK
from tracer.records.spans import TRACE_ID_BYTES, LogRecord
from tracer.resource import NO_SERVICE, Service, service_of

_MASK = MASK[1:].encode()
"""The beginning of a mask without its bracket. Every mask contains it, even if JSON escapes the
bracket."""

_MOST_CHILDREN = 10
_MOST_READ_BYTES = 1_000_000
"""The maximum number of bytes to read if many children are read together with their parent. The
parent's bytes count once for each child. Above the limit, the children are read without it."""


class Resources:
    """The resources of a run's spans and log records, decoded on demand."""

    def __init__(self, versions: Mapping[bytes, _Version], logs: Iterable[LogRecord]) -> None:
        """Store the versions of the spans, in any order, and the log records, sorted."""
        self._versions = versions
        self._logs = logs

    def service(self, root_span_id: bytes | None) -> Service:
        """Return the name, version and environment of the service that executed the run.

        The resource of the root agent's span decides. If it names no service, the earliest span
        that names one decides, and finally the first log record that does.
        """
        services = (service_of(resource) for resource in self._resources(root_span_id))
        return next((each for each in services if any(each.values())), NO_SERVICE)

    def _resources(self, root_span_id: bytes | None) -> Iterator[Mapping[str, Any]]:
        root = self._versions.get(root_span_id or b"")
        if root is not None:
            yield attributes_of(root.resource_spans.resource.attributes)
        # Spans of one request share their resource.
        shared = {
            id(each.resource_spans): each.resource_spans for each in sorted(self._versions.values())
        }
        for resource_spans in shared.values():
            yield attributes_of(resource_spans.resource.attributes)
        for record in self._logs:
            yield record.resource


@dataclass(slots=True)
class RunSpans:
    """The spans of a run, read by their dialects."""

    trace_id: bytes
    """The trace id. For a session's own run, `session_run_id` of the session."""
    is_of_session: bool
    """Whether this is a session's own run, which contains only log records without a trace id."""
    sessions: frozenset[bytes]
    """The `session_run_id` of each session that the log records name."""
    spans: list[SlimSpan]
    """The spans, sorted by start and id. Spans that dialects created from log records are included.
    A pending span is replaced by the span that it announces."""
    versions: dict[bytes, SlimSpan]
    """One version of each span that was sent, including pending spans."""
    announced: dict[bytes, bytes]
    """The id of the span that each pending span announces."""
    may_hold_masks: bool
    """Whether any text may contain a mask of a secret."""
    later: dict[bytes, int]
    """The index of the first message that contains a span, by span id. Index 0 is left out."""
    log_records: int
    """The number of different log records."""
    resources: Resources


class _Version(NamedTuple):
    """One version of a span, as it was sent. Sorts by start and id."""

    start: int
    span_id: bytes
    end: int
    wire: Any
    scope: str
    scope_spans: Any
    resource_spans: Any

    def body(self) -> bytes:
        """Return the span with its resource and scope, as one serialized `ResourceSpans`."""
        envelope = Envelope.of_messages(self.resource_spans, self.scope_spans)
        return envelope.body(self.wire.SerializeToString(deterministic=True))

    def is_newer(self, other: _Version) -> bool:
        """Return whether this version replaces `other`.

        It does if its end is later. If the ends are equal, the version with greater bytes wins.
        """
        if self.end != other.end:
            return self.end > other.end
        return self.body() > other.body()


def read_run(messages: Iterable[bytes], of_sessions: Iterable[bytes] = ()) -> RunSpans:
    """Return the spans of one run.

    The result does not depend on the order of the messages, or on how the spans are divided among
    them.

    Args:
        messages: Stored messages (`tracer.otel.otlp.logs`) of one trace, with at least one span or
            log record. Their items were checked when they were accepted.
        of_sessions: The stored messages of the own runs (`session_run_id`) of the sessions that
            this run's log records name. Their log records without a trace id are read, too.

    Raises:
        google.protobuf.message.DecodeError: A message cannot be parsed.
    """
    newest: dict[bytes, _Version] = {}
    later: dict[bytes, int] = {}
    logs: list[LogRecord] = []
    may_hold_masks = False
    for index, message in enumerate(messages):
        may_hold_masks = may_hold_masks or _MASK in message
        data = StoredMessage.FromString(message)
        logs += logs_in(data)
        for resource_spans in data.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                scope = scope_spans.scope.name
                for wire in scope_spans.spans:
                    span_id = wire.span_id
                    version = _Version(
                        wire.start_time_unix_nano,
                        span_id,
                        wire.end_time_unix_nano,
                        wire,
                        scope,
                        scope_spans,
                        resource_spans,
                    )
                    earlier = newest.get(span_id)
                    if earlier is None or version.is_newer(earlier):
                        newest[span_id] = version
                    if index and earlier is None:
                        later[span_id] = index
    logs = merge_logs(logs)
    count = len(logs)
    sessions = frozenset(_sessions(logs))
    for message in of_sessions:
        may_hold_masks = may_hold_masks or _MASK in message
        others = logs_of([message])
        logs += [record for record in others if not any(record.trace_id)]
    logs = merge_logs(logs)
    versions = {version.span_id: _slim(version) for version in sorted(newest.values())}
    for record in logs:
        event = genai.event_of(record)
        if event is not None and record.span_id in versions:
            versions[record.span_id].events += (event,)
    announced, standing = _replace_pending(versions, newest)
    for pending, span_id in announced.items():
        first = later.get(pending, 0)
        if span_id not in versions or first < later.get(span_id, 0):
            later[span_id] = min(first, later.get(span_id, first))
    spans = list(standing.values())
    _link_parents(spans, standing)
    _correct_times(spans)
    _read(spans, newest)
    return RunSpans(
        trace_id=_run_id(newest, logs),
        is_of_session=not newest and not any(any(record.trace_id) for record in logs),
        sessions=sessions,
        spans=complete_run(spans, logs),
        versions=versions,
        announced=announced,
        may_hold_masks=may_hold_masks,
        later=later,
        log_records=count,
        resources=Resources(newest, logs),
    )


def _run_id(versions: Mapping[bytes, _Version], logs: list[LogRecord]) -> bytes:
    """Return the trace id of a run; for log records without a trace, their session's run id."""
    ids: Iterator[bytes] = (version.wire.trace_id for version in versions.values())
    of_logs = (record.trace_id for record in logs if any(record.trace_id))
    return next(chain(ids, of_logs, _sessions(logs)), bytes(TRACE_ID_BYTES))


def _sessions(logs: Iterable[LogRecord]) -> Iterator[bytes]:
    """Yield `session_run_id` of each session that log records name."""
    return (session_run_id(name) for record in logs if (name := session_of(record)) is not None)


def _correct_times(spans: list[SlimSpan]) -> None:
    """Replace a missing start by that of the earliest child, or by the end. No end is before it."""
    missing = {span for span in spans if not span.start}
    for span in spans:
        above = span.parent
        while span.start and above is not None and above in missing:
            above.start = min(above.start or span.start, span.start)
            above = above.parent
    for span in spans:
        span.start = span.start or span.end
        if span.end:
            span.end = max(span.start, span.end)
    if missing:
        spans.sort(key=lambda span: span.order)


def _slim(version: _Version) -> SlimSpan:
    wire = version.wire
    status, events, parent_span_id = wire.status, wire.events, wire.parent_span_id
    return SlimSpan(
        version.span_id,
        parent_span_id if any(parent_span_id) else None,
        version.start,
        version.end,
        wire.name,
        version.scope,
        status.code,
        status.message,
        attributes_of(wire.attributes),
        events_of(events) if events else (),
    )


def _replace_pending(
    versions: dict[bytes, SlimSpan], received: dict[bytes, _Version]
) -> tuple[dict[bytes, bytes], dict[bytes, SlimSpan]]:
    """Replace each pending span by the unfinished span that it announces.

    If the announced span has arrived, the pending span is only removed.

    Args:
        versions: One version of each span, sorted.
        received: The same versions as they were sent. An entry is added for each announced span
            that has not arrived.

    Returns:
        The id that each pending span announces, and the spans of the run, sorted.
    """
    pending = [span for span in versions.values() if is_pending(span)]
    if not pending:
        return {}, versions
    real = {span_id: span for span_id, span in versions.items() if not is_pending(span)}
    announced: dict[bytes, bytes] = {}
    sources: dict[bytes, _Version] = {}
    standing: dict[bytes, SlimSpan] = {}
    for span in pending:
        assert span.parent_span_id is not None
        span_id = announced[span.span_id] = span.parent_span_id
        source = received[span.span_id]._replace(end=0)
        earlier = sources.get(span_id)
        if earlier is None or source.is_newer(earlier):
            sources[span_id] = source
            parent = announced_parent(span)
            standing[span_id] = replace(span, span_id=span_id, parent_span_id=parent, end=0)
    received |= {span_id: source for span_id, source in sources.items() if span_id not in real}
    standing |= real
    return announced, dict(sorted(standing.items(), key=lambda item: item[1].order))


def _link_parents(spans: list[SlimSpan], by_id: dict[bytes, SlimSpan]) -> None:
    """Set the parent of each span. Break cycles of parents at the span with the least id."""
    suspects: list[SlimSpan] = []
    for span in spans:
        parent_id = span.parent_span_id
        if parent_id is None:
            continue
        parent = by_id.get(parent_id)
        if parent is None:
            span.missing_parent = parent_id
            continue
        span.parent = parent
        if parent.start >= span.start:
            suspects.append(span)  # each circle has a span that does not start after its parent
    cut_circles(suspects)


def _read(spans: list[SlimSpan], versions: dict[bytes, _Version]) -> None:
    """Set the facts of each span, with the dialect that recognizes it."""
    with_parent: list[SlimSpan] = []
    for span in spans:
        if reads_parent(span):
            with_parent.append(span)
        else:
            span.facts = read_span(span)
    children = Counter(span.parent for span in with_parent)
    # Each of many children would read, and keep, too much of the same text.
    too_large = {
        parent
        for parent, count in children.items()
        if parent is not None
        and count > _MOST_CHILDREN
        and count * len(versions[parent.span_id].body()) > _MOST_READ_BYTES
    }
    for span in with_parent:
        span.facts = read_span(span, None if span.parent in too_large else span.parent)
