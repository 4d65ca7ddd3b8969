"""A trace between its writes: what was found out about its spans, for when more of them come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    new, old = _compared(after, before), _compared(before, after)
    for kind, records in after.records.items():
        known = before.records[kind]
        changed[kind] = {
            record_id: fields
            for record_id, fields in new[kind].items()
            if (old_fields := known.get(record_id)) is not fields and old_fields != fields
        }
        removed[kind] = [record_id for record_id in old[kind] if record_id not in records]
    return Changes(changed, removed)


def _compared(one: Projected, other: Projected) -> Mapping[Kind, Mapping[UUID, Fields]]:
    """Return the records of a projection without the work that another has as well."""
    if one.work is None or other.work is None:
        return one.records
    own = [work for step_id, work in one.work.items() if other.work.get(step_id) is not work]
    return {
        **one.records,
        Kind.THINK_ACT: {key: each for work in own for key, each in work.think_acts.items()},
        Kind.TOOL_CALL: {key: each for work in own for key, each in work.tool_calls.items()},
    }
