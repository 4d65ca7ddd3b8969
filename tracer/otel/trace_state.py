"""A trace between its writes: what was found out about its spans, for when more of them come."""

from __future__ import annotations

from collections.abc import Iterable

from tracer.otel.additions import Additions
from tracer.otel.agents import find_agents
from tracer.otel.carried_records import carried_records
from tracer.otel.growth import grow
from tracer.otel.making import LastMade, Making
from tracer.otel.projected import Placed, Projected
from tracer.otel.spans import Span
from tracer.otel.trace_spans import Put, TraceSpans
from tracer.otel.work_records import MadeRecords

MOST_MORE = 0.25
"""What part of a trace may come at once and be added to it: of more, all is grown anew sooner."""


class TraceState:
    """One trace as it grows: what stays the same is not made anew. It is for one user at a time."""

    def __init__(self) -> None:
        self._spans = TraceSpans()
        self._made = MadeRecords()
        self._grown: Additions | None = None
        """What it was grown to, where that takes more spans."""
        self._last: LastMade | None = None
        """What the records were, of what has been grown so far."""

    @property
    def size(self) -> int:
        """About how much memory it takes up."""
        return self._spans.size

    def put(self, spans: Iterable[Span]) -> Put:
        """Take spans of the trace in any order and number of versions.

        Returns:
            What that changes; where both lists are empty, the projection stays as it is.
        """
        return self._spans.put(spans)

    def project(self) -> Projected:
        """Return the records of all spans so far, of which there has to be one.

        A record that is what it was in the last projection is mostly the same object. So nobody
        may change one.
        """
        carried = self._carried()
        return carried if carried is not None else self._made_of_spans()[1]

    def placed(self) -> Placed:
        """Return what `project` does, with the places of the spans."""
        carried = self._carried()
        if carried is not None:
            return carried
        making, projected = self._made_of_spans()
        return Placed(**vars(projected), record_of=making.record_of())

    def _carried(self) -> Placed | None:
        versions = self._spans.versions
        if not self._spans.carry_records:
            return None
        carried = carried_records(next(iter(versions.values())).trace_id, versions)
        return (
            carried if carried is None else Placed(**vars(carried), is_agent_work=True, work=None)
        )

    def _made_of_spans(self) -> tuple[Making, Projected]:
        grown, last, is_plain = self._extended(), self._last, True
        if grown is None:
            forest = self._spans.planted()
            is_plain = grow(forest) and self._spans.are_plain
            grown, last = Additions(forest, find_agents(forest)), None
        making = Making(grown.forest, grown.agents, self._made)
        projected = making.result(last, grown.touched)
        grown.touched = set()
        self._last = LastMade(making.structure, projected)
        self._grown = grown if is_plain else None
        return making, projected

    def _extended(self) -> Additions | None:
        """Return what was grown with the spans that came since; None where that cannot be said."""
        grown, self._grown = self._grown, None  # it holds again when records were made of it
        more = self._spans.more() if grown is not None else None
        if grown is None or more is None or len(more) > len(grown.forest.order) * MOST_MORE:
            return None
        if not grown.take(more):
            return None
        grown.forest.holds_masks = self._spans.hold_masks
        return grown
