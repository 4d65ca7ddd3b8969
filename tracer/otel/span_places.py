"""Places of spans: which record of a run each of its original spans belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from tracer.ids import span_id
from tracer.otel.projected import Projected, RecordPlace
from tracer.otel.projection import project
from tracer.otel.spans import Span
from tracer.records import Kind


def places_of(
    spans: Collection[Span], known: Mapping[Kind, Collection[UUID]]
) -> dict[bytes, RecordPlace]:
    """Return the record that each span of a run belongs to; left out are those that have none.

    Args:
        spans: All spans of the run's trace.
        known: The run's records. Where spans make no records, that is in a run that came as
            events, a span belongs to the tool call on its way up.
    """
    if not spans:
        return {}
    places = _below_calls(spans, known.get(Kind.TOOL_CALL, ()))
    projected = project(spans)
    if _are_those_of(projected, known):
        places = {**projected.record_of, **places}
    return {span.span_id: places[span.span_id] for span in spans if span.span_id in places}


def _are_those_of(projected: Projected, known: Mapping[Kind, Collection[UUID]]) -> bool:
    """Return whether the run's records are a projection.

    The root plan does not tell: it has the same id in any case.
    """
    made = {record_id for records in projected.records.values() for record_id in records}
    there = {record_id for ids in known.values() for record_id in ids}
    root = {projected.root_plan_id}
    return bool((made & there) - root) or made == there == root


def _below_calls(spans: Iterable[Span], calls: Iterable[UUID]) -> dict[bytes, RecordPlace]:
    """Return the nearest tool call above each span, by the span ids that stand for the calls."""
    parents = {span.span_id: span.parent_span_id for span in spans}
    found: dict[bytes, RecordPlace | None] = {
        bytes.fromhex(span_id(call)): (Kind.TOOL_CALL, call) for call in calls
    }
    for start in parents:
        way: list[bytes] = []
        climbed: set[bytes] = set()
        at: bytes | None = start
        while at is not None and at not in found and at not in climbed:
            climbed.add(at)
            way.append(at)
            at = parents.get(at)
        place = found.get(at) if at is not None else None
        for each in way:
            found[each] = place
    return {each: place for each in parents if (place := found[each]) is not None}
