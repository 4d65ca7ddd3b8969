"""The spans of one trace as a forest: what each is, and what it hangs under.

Wrappers are transparent: a span's place is the nearest span above it that is an agent, a model's
answer or a tool call. Where the way up ends in a span that has not come, that one is the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tracer.otel.dialects.reading import Reading, Role
from tracer.otel.spans import Span
from tracer.otel.texts import Texts


class Above(Enum):
    """What the way up from a span ends in."""

    SPAN = "span"
    """An agent, a model's answer or a tool call."""
    MISSING = "missing"
    """A span that has not come."""
    TOP = "top"
    """Nothing: the way ends in a span without a parent."""


Place = tuple[Above, bytes]
"""How the way up ends, and at which span; at the top, the topmost one."""

NODES = (Role.AGENT, Role.MODEL, Role.TOOL)
"""What becomes records."""


@dataclass
class Forest:
    """The spans of one trace, by id; `order` has them by time."""

    trace_id: bytes
    spans: Mapping[bytes, Span]
    order: list[bytes]
    parents: dict[bytes, bytes | None]
    """The parent of each span, where it is there; circles are cut."""
    missing: dict[bytes, bytes]
    """The parent of each span whose parent has not come."""
    readings: dict[bytes, Reading]
    holds_masks: bool = True
    """Whether any span may have a mask in it."""
    texts: Texts = field(default_factory=Texts)
    """Every text among the arguments of a call, by those."""
    places: dict[bytes, Place] = field(default_factory=dict)
    announced: dict[bytes, bytes] = field(default_factory=dict)
    """The span that each pending span announces."""
    telling: list[bytes] = field(default_factory=list)
    """The spans by time that say of which conversation they are, or on whose behalf."""
    merged: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Spans that say again what the one named first says: they are no records of their own."""

    def role(self, span_id: bytes) -> Role:
        """Return what a span is."""
        return self.readings[span_id].role

    def having(self, role: Role) -> list[bytes]:
        """Return the spans of this role by time."""
        return [span_id for span_id in self.order if self.readings[span_id].role is role]

    def path(self, span_id: bytes) -> Iterable[bytes]:
        """Yield the spans above one, nearest first."""
        above = self.parents[span_id]
        while above is not None:
            yield above
            above = self.parents[above]


def set_places(forest: Forest) -> None:
    """Set the place of each span by what the spans are now, however deep they nest."""
    parents, missing, readings = forest.parents, forest.missing, forest.readings
    places: dict[bytes, Place] = {}
    for span_id in forest.order:
        at, way = span_id, []
        place = places.get(span_id)
        while place is None:
            above = parents[at]
            if above is None:
                gone = missing.get(at)
                place = (Above.TOP, at) if gone is None else (Above.MISSING, gone)
            elif readings[above].role in NODES:
                place = (Above.SPAN, above)
            else:
                place = places.get(above)
                way.append(at)
                at = above
        places[at] = place
        for each in way:
            places[each] = place
    forest.places = places


def followed(links: dict[bytes, bytes], span_id: bytes) -> bytes:
    """Return the span that links lead to; those on the way lead to it at once from then on."""
    way = []
    while (at := links.get(span_id)) is not None:
        way.append(span_id)
        span_id = at
    for each in way:
        links[each] = span_id
    return span_id


def parents_of(
    spans: Mapping[bytes, Span],
) -> tuple[dict[bytes, bytes | None], dict[bytes, bytes]]:
    """Return the parent of each span, circles cut, and the parents that have not come."""
    parents: dict[bytes, bytes | None] = {}
    missing: dict[bytes, bytes] = {}
    earlier: list[bytes] = []
    for span_id, span in spans.items():
        above = span.parent_span_id
        parent = spans.get(above) if above is not None else None
        if parent is not None:
            parents[span_id] = above
            if parent.start >= span.start:
                earlier.append(span_id)
        else:
            parents[span_id] = None
            if above is not None:
                missing[span_id] = above
    _cut_circles(parents, earlier)
    return parents, missing


def _cut_circles(parents: dict[bytes, bytes | None], starts: Iterable[bytes]) -> None:
    """Cut each circle at its least span.

    Args:
        parents: Changed in place.
        starts: The spans that do not begin after their parents. Each circle has such a one.
    """
    done: set[bytes] = set()
    for start in starts:
        way: dict[bytes, None] = {}
        at: bytes | None = start
        while at is not None and at not in done and at not in way:
            way[at] = None
            at = parents[at]
        if at is not None and at in way:
            climbed = list(way)
            parents[min(climbed[climbed.index(at) :])] = None
        done.update(way)
