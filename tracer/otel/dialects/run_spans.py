"""`SlimSpan`: a span of a run, linked to its parent and annotated by its dialect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tracer.otel.dialects.span_facts import WRAPPER, SpanFacts
from tracer.otel.otlp.spans import Attributes, SpanEvent


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
    """Its parent, if that has arrived; circles are cut."""
    missing_parent: bytes | None = None
    """The id of its parent, if that has not arrived."""
    inferred: str | None = None
    """Why its parent was inferred. None if ids name the parent."""
    facts: SpanFacts = WRAPPER
    """The facts of its dialect. Merges replace it."""
    above: SlimSpan | None = None
    """The nearest agent, model or tool above it."""
    awaits: bytes | None = None
    """The id of the span that has not arrived at which the way up ends. None if `above` is set, and
    at the top."""
    merged_into: SlimSpan | None = None
    """The span that it was merged into, if both describe the same work."""
    record_id: bytes = field(default=b"")
    """The id of its think-act or tool call."""
    lasting_id: bytes | None = None
    """The id from which its records' ids are derived, if the emitter's log records use another id
    than the span. The records then keep their ids when the span arrives."""

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
