"""Correct the times of spans from processes whose clocks disagree with those of their callers.

The rule is that of Jaeger's adjuster of clock skew. A call lies within the time of its caller. If
the recorded times contradict, the child and the spans below it in its process are shifted: its
start to that of the parent if the child took longer, else so that the time before and after it in
the parent is equal. Times of one process are never changed, because it has one clock: there, a
child that outlives its parent is a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.dialects.dialect import SlimSpan
from tracer.otel.otlp.spans import attributes_of

_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
"""Bits of `Span.flags` (OTLP): whether it is known that the parent is in another process, and
whether it is."""
_HOSTS = ("service.instance.id", "host.id", "host.name", "container.id", "k8s.pod.uid")
"""The resource attributes that identify a process or a machine. Two resources with an equal value
have the same clock."""
_NO_HOSTS = ("", "localhost")
_MICROSECOND = 1000


class SentSpan(Protocol):
    """A span as it was sent."""

    @property
    def wire(self) -> Any:
        """The span as protobuf."""

    @property
    def resource_spans(self) -> Any:
        """The `ResourceSpans` that contained the span."""


class _Clock(NamedTuple):
    """The clock of a process, and the shift of the spans that it timed, in nanoseconds."""

    resource: Mapping[str, Any]
    shift: int


def correct_clocks(spans: list[SlimSpan], sent: Mapping[bytes, SentSpan]) -> None:
    """Shift the times of spans whose process's clock disagrees with the clock of their caller.

    Args:
        spans: All spans of a run, sorted, with parents. Their times and `SlimSpan.shift` are set,
            and the list is sorted again.
        sent: The spans that were sent, by id. Spans that are not among them belong to the process
            of their parent.
    """
    resources = _Resources(sent)
    if not any(
        span.parent is not None
        and span.contradicts(span.parent)
        and resources.is_call_between_processes(span, span.parent)
        for span in spans
    ):
        return
    children: dict[SlimSpan | None, list[SlimSpan]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    waiting: list[tuple[SlimSpan, tuple[_Clock, ...]]] = [
        (span, (_Clock(resources[span], 0),)) for span in children.get(None, ())
    ]
    """Spans with the clocks of their own process and of those above it, the nearest last."""
    while waiting:
        span, clocks = waiting.pop()
        if span.parent is not None and resources.is_call_between_processes(span, span.parent):
            clocks = _with_clock_of(span, span.parent, resources[span], clocks)
        span.shift = clocks[-1].shift
        span.start += span.shift if span.start else 0
        span.end += span.shift if span.end else 0
        waiting += [(child, clocks) for child in children.get(span, ())]
    spans.sort(key=lambda span: span.order)


def _with_clock_of(
    span: SlimSpan, parent: SlimSpan, resource: Mapping[str, Any], clocks: tuple[_Clock, ...]
) -> tuple[_Clock, ...]:
    """Return the clocks above a span with its own clock as the last one.

    Args:
        span: A span whose parent is in another process.
        parent: The parent, with corrected times.
        resource: The resource of the span.
        clocks: The clocks of the processes above the span.
    """
    known = [clock.shift for clock in clocks if _has_same_host(clock.resource, resource)]
    shift = known[-1] if known else _shift(span, parent)
    return (*clocks[-_MOST_CLOCKS:], _Clock(resource, shift))


_MOST_CLOCKS = 20


def _shift(span: SlimSpan, parent: SlimSpan) -> int:
    """Return the nanoseconds to add to a call's times: whole microseconds, as records have them."""
    if not span.contradicts(parent):
        return 0
    spare = 0
    if span.end and parent.end:
        spare = max(0, (parent.end - parent.start) - (span.end - span.start))
    shift = parent.start + spare // 2 - span.start
    return -(-shift // _MICROSECOND) * _MICROSECOND


class _Resources(dict[SlimSpan, Mapping[str, Any]]):
    """The resources of spans, decoded on demand."""

    def __init__(self, sent: Mapping[bytes, SentSpan]) -> None:
        super().__init__()
        self._sent = sent
        self._decoded: dict[int, Mapping[str, Any]] = {}

    def __missing__(self, span: SlimSpan) -> Mapping[str, Any]:
        at: SlimSpan | None = span
        while at is not None and at.span_id not in self._sent:
            at = at.parent
        sent = self._sent[at.span_id].resource_spans if at is not None else None
        if id(sent) not in self._decoded:
            self._decoded[id(sent)] = attributes_of(sent.resource.attributes) if sent else {}
        resource = self[span] = self._decoded[id(sent)]
        return resource

    def is_call_between_processes(self, span: SlimSpan, parent: SlimSpan) -> bool:
        """Return whether a span's parent is in another process, which waited for the span.

        A consumer of a message queue starts after its producer has ended, which waited for nothing.
        """
        sent = self._sent.get(span.span_id)
        if sent is None or sent.wire.kind == WireSpan.SPAN_KIND_CONSUMER:
            return False
        flags = sent.wire.flags
        if flags & _HAS_IS_REMOTE and not flags & _IS_REMOTE:
            return False
        own, above = self[span], self[parent]
        if _has_same_host(own, above):
            return False
        return bool(flags & _IS_REMOTE) or own != above


def _has_same_host(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    hosts: Iterable[tuple[Any, Any]] = ((one.get(name), other.get(name)) for name in _HOSTS)
    return any(own == above and own and own not in _NO_HOSTS for own, above in hosts)
