"""What a projection makes of the spans of a trace, and what tells one projection from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from tracer.otel.work_records import Totals, Work, added_up, totals_of
from tracer.records import Kind
from tracer.versions import Fields

RecordPlace = tuple[Kind, UUID]
"""Which record a span is, or belongs to."""


@dataclass(frozen=True)
class Projected:
    """The records of one trace. Text is in stored form."""

    root_plan_id: UUID
    is_agent_work: bool
    """Whether there is any agent, model or tool call in it."""
    run: Fields
    """The run's own fields."""
    records: dict[Kind, dict[UUID, Fields]]
    """The records below the run by kind and id; plans and tool calls say whether inferred."""
    work: dict[UUID, Work] | None
    """All rounds and tool calls by their steps, where their agents' spans say whose they are; what
    stayed the same since the projection before is the same object."""

    @property
    def totals(self) -> Totals:
        """What all rounds and tool calls come to."""
        if self.work is None:
            rounds, calls = self.records[Kind.THINK_ACT], self.records[Kind.TOOL_CALL]
            return totals_of(rounds.values(), calls.values())
        return added_up([work.totals for work in self.work.values()])


@dataclass(frozen=True)
class Placed(Projected):
    """The records of one trace, and where its spans are among them."""

    record_of: dict[bytes, RecordPlace]
    """The record that each span became, or belongs to: a wrapper goes with the one above it."""


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
