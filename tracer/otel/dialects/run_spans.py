"""`SlimSpan`: a span of a run, linked to its parent and annotated by its dialect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tracer.otel.dialects.span_facts import WRAPPER, SpanFacts
from tracer.records.spans import Attributes, SpanEvent


@dataclass(slots=True, eq=False)
class SlimSpan:
    """One span of a run. Times are nanoseconds since 1970; an `end` of 0 means no end yet.

    The projection sets the fields with defaults, step by step, in the order in which they are
    listed.
    """

    span_id: bytes
    parent_span_id: bytes | None
    start: int
    end: int
    name: str
    scope: str
    status_code: int
    status_message: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    parent: SlimSpan | None = None
    """The parent of the span, if it has arrived. Cycles of parents are broken."""
    missing_parent: bytes | None = None
    """The id of the parent, if the parent has not arrived."""
    inferred: str | None = None
    """The evidence, if the parent was inferred. None if span ids identify the parent."""
    facts: SpanFacts = WRAPPER
    """The fields that the dialect read from the span. They change when spans are merged."""
    above: SlimSpan | None = None
    """The nearest agent, model call or tool call above the span."""
    awaits: bytes | None = None
    """If no such ancestor is known because a span above has not arrived, the id of this missing
    span. Otherwise None."""
    merged_into: SlimSpan | None = None
    """The span that this span was merged into, if both describe the same work."""
    record_id: bytes = field(default=b"")
    """The id of the think-act or tool call that the span becomes."""
    lasting_id: bytes | None = None
    """The id from which the ids of the span's records are derived, instead of `span_id`. It is set
    if log records describe the same work under another id. The records then keep their ids when the
    span arrives."""

    @property
    def identity(self) -> bytes:
        """The id from which the ids of this span's records are derived."""
        return self.lasting_id or self.span_id

    @property
    def order(self) -> tuple[int, bytes]:
        """The sort key of spans: start and id."""
        return self.start, self.span_id


def cut_circles(suspects: Iterable[SlimSpan]) -> None:
    """Break each cycle of parent links that contains one of the given spans.

    In each cycle, the span with the least id loses its parent.
    """
    done: set[SlimSpan] = set()
    for suspect in suspects:
        way: dict[SlimSpan, None] = {}
        at: SlimSpan | None = suspect
        while at is not None and at not in done and at not in way:
            way[at] = None
            at = at.parent
        if at is not None and at in way:
            climbed = list(way)
            min(climbed[climbed.index(at) :], key=lambda span: span.span_id).parent = None
        done.update(way)
