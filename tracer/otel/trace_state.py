"""A trace between its writes: what was found out about its spans, for when more of them come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from tracer.otel.projection import Projected, Projection
from tracer.otel.spans import Span
from tracer.otel.trace_spans import Put
from tracer.records import Kind
from tracer.versions import Fields


class TraceState:
    """One trace as it grows. It is for one user at a time."""

    def __init__(self) -> None:
        self._projection = Projection()

    @property
    def size(self) -> int:
        """About how much memory it takes up."""
        return self._projection.spans.size

    def put(self, spans: Iterable[Span]) -> Put:
        """Take spans of the trace in any order and number of versions.

        Returns:
            What that changes; where both lists are empty, the projection stays as it is.
        """
        return self._projection.spans.put(spans)

    def project(self) -> Projected:
        """Return the records of all spans so far: what `project` says of them; there has to be one.

        A record that is what it was in the last projection is mostly the same object. So nobody
        may change one.
        """
        return self._projection.projected()


@dataclass(frozen=True)
class Changes:
    """What tells one projection of a trace from another."""

    records: dict[Kind, dict[UUID, Fields]]
    """The records that are new or not what they were."""
    removed: dict[Kind, list[UUID]]
    """The records that are there no more."""


def changes(before: Projected | None, after: Projected) -> Changes:
    """Return what has changed between two projections of a trace; all of it without the first."""
    if before is None:
        return Changes(after.records, {kind: [] for kind in after.records})
    changed: dict[Kind, dict[UUID, Fields]] = {}
    removed: dict[Kind, list[UUID]] = {}
    for kind, records in after.records.items():
        known = before.records[kind]
        changed[kind] = {
            record_id: fields
            for record_id, fields in records.items()
            if (old := known.get(record_id)) is not fields and old != fields
        }
        removed[kind] = [*(known.keys() - records.keys())]
    return Changes(changed, removed)
