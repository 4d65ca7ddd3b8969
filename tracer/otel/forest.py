"""The spans of one trace as a forest: what each is, and what it hangs under.

Wrappers are transparent: a span's place is the nearest span above it that is an agent, a model's
answer or a tool call. Where the way up ends in a span that has not come, that one is the place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from tracer.otel.dialects import logfire, read_span
from tracer.otel.dialects.reading import Reading, Role
from tracer.otel.spans import Span, newer


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
    spans: dict[bytes, Span]
    order: list[bytes]
    parents: dict[bytes, bytes | None]
    """The parent of each span, where it is there; circles are cut."""
    missing: dict[bytes, bytes]
    """The parent of each span whose parent has not come."""
    readings: dict[bytes, Reading]
    places: dict[bytes, Place] = field(default_factory=dict)
    announced: dict[bytes, bytes] = field(default_factory=dict)
    """The span that each pending span announces."""
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


def plant(spans: Iterable[Span]) -> Forest:
    """Return the spans of one trace with what each says of itself.

    Args:
        spans: In any order and number of versions, and with gaps.
    """
    kept, announced = _effective(spans)
    parents, missing = _parents(kept)
    forest = Forest(
        trace_id=next(iter(kept.values())).trace_id,
        spans=kept,
        order=sorted(kept, key=lambda span_id: kept[span_id].order),
        parents=parents,
        missing=missing,
        readings={
            span_id: read_span(span, kept.get(parents[span_id] or b""))
            for span_id, span in kept.items()
        },
        announced=announced,
    )
    set_places(forest)
    return forest


def set_places(forest: Forest) -> None:
    """Set the place of each span by what the spans are now, however deep they nest."""
    places: dict[bytes, Place] = {}
    for span_id in forest.order:
        way = []
        at = span_id
        while at not in places:
            way.append(at)
            above = forest.parents[at]
            if above is None:
                gone = forest.missing.get(at)
                places[at] = (Above.TOP, at) if gone is None else (Above.MISSING, gone)
            elif forest.readings[above].role in NODES:
                places[at] = (Above.SPAN, above)
            else:
                at = above
        for each in reversed(way):
            places.setdefault(each, places[at])
    forest.places = places


def _effective(spans: Iterable[Span]) -> tuple[dict[bytes, Span], dict[bytes, bytes]]:
    """Return one version of each span, and which span each pending one announces.

    What is announced stands in for a span that has not come.
    """
    real: dict[bytes, Span] = {}
    pending: dict[bytes, Span] = {}
    announced: dict[bytes, bytes] = {}
    for span in spans:
        found, into = span, real
        if logfire.is_pending(span):
            found, into = logfire.announced(span), pending
            announced[span.span_id] = found.span_id
        earlier = into.get(found.span_id)
        into[found.span_id] = found if earlier is None else newer(earlier, found)
    return {**pending, **real}, announced


def _parents(spans: dict[bytes, Span]) -> tuple[dict[bytes, bytes | None], dict[bytes, bytes]]:
    parents: dict[bytes, bytes | None] = {}
    missing: dict[bytes, bytes] = {}
    for span_id, span in spans.items():
        above = span.parent_span_id
        parents[span_id] = above if above in spans and above != span_id else None
        if above is not None and above not in spans:
            missing[span_id] = above
    done: set[bytes] = set()
    for span_id in spans:
        way: list[bytes] = []
        at: bytes | None = span_id
        climbed: set[bytes] = set()
        while at is not None and at not in done and at not in climbed:
            climbed.add(at)
            way.append(at)
            at = parents[at]
        if at is not None and at in climbed:
            parents[min(way[way.index(at) :])] = None
        done.update(way)
    return parents, missing
