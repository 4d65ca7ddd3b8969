"""Determine which record of a run each of its original spans belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from tracer.otel.otlp.encode import encode_protobuf
from tracer.otel.otlp.logs import encode_logs
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.otel.projection.project import place_spans
from tracer.records.ids import span_id
from tracer.records.record_classes import Kind, RecordReference
from tracer.records.spans import LogRecord, Span


def places_of(
    spans: Collection[Span],
    known: Mapping[Kind, Collection[UUID]],
    logs: Iterable[LogRecord] = (),
) -> dict[bytes, RecordReference]:
    """Return the record that each span of a run belongs to, by span id.

    If the run arrived as spans, each span belongs to the record that it became or is part of. If
    the run arrived as events, a span belongs to the nearest tool call above it.

    Args:
        spans: All spans of the run's trace.
        known: The ids of the run's records, by kind.
        logs: All log records of the run.

    Returns:
        The kind and id of the record. Spans that belong to no record of `known` are omitted.
    """
    if not spans:
        return {}
    places = {
        span_id: (kind, UUID(bytes=record_id))
        for span_id, (kind, record_id) in place_spans(
            [encode_protobuf(spans) + encode_logs(logs)]
        ).items()
    }
    root_id = root_plan_id(next(iter(spans)).trace_id)
    if not _are_projected(root_id, places.values(), known):
        places = {}
    places |= _below_calls(spans, known.get(Kind.TOOL_CALL, ()))
    return {
        span.span_id: place
        for span in spans
        for place in [places.get(span.span_id)]
        if place is not None and place[1] in known.get(place[0], ())
    }


def _are_projected(
    root_id: UUID, places: Iterable[RecordReference], known: Mapping[Kind, Collection[UUID]]
) -> bool:
    """Return whether the run's records were made from these spans.

    The id of the root plan is not evidence, because a run has the same root plan id if it arrives
    as events.
    """
    placed = {record_id for _, record_id in places}
    there = {record_id for ids in known.values() for record_id in ids}
    return not placed.isdisjoint(there - {root_id}) or placed == there == {root_id}


def _below_calls(spans: Iterable[Span], calls: Iterable[UUID]) -> dict[bytes, RecordReference]:
    """Return the nearest tool call above each span, for tool calls that events recorded."""
    parents = {span.span_id: span.parent_span_id for span in spans}
    places: dict[bytes, RecordReference | None] = {
        bytes.fromhex(span_id(call)): (Kind.TOOL_CALL, call) for call in calls
    }
    for start in parents:
        way: list[bytes] = []
        climbed: set[bytes] = set()
        at: bytes | None = start
        while at is not None and at not in places and at not in climbed:
            climbed.add(at)
            way.append(at)
            at = parents.get(at)
        place = places.get(at) if at is not None else None
        for each in way:
            places[each] = place
    return {each: place for each in parents if (place := places[each]) is not None}
