"""What a write of spans changes of the records of its runs: pure, and the costly part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from tracer.merge import Key
from tracer.otel.projected import Projected, changes
from tracer.records import RECORDS, Kind
from tracer.storage.known_traces import KnownTrace
from tracer.storage.projected_runs import shown_of_run
from tracer.versions import Fields

Records = dict[Kind, dict[Key, Fields]]


def _no_records() -> Records:
    return {kind: {} for kind in RECORDS}


@dataclass
class RecordChanges:
    """The rows of some runs that a projection makes other than they were."""

    new: Records = field(default_factory=_no_records)
    """Records that are certainly not there yet."""
    given: Records = field(default_factory=_no_records)
    """Records that may be there, and be others."""
    runs: dict[Key, Fields] = field(default_factory=dict)
    """What each run shows."""
    cleared: dict[UUID, Projected] = field(default_factory=dict)
    """The runs that have no records but those of their projections; others may be there."""

    def add(self, run_id: UUID, trace: KnownTrace) -> None:
        """Add what the spans of a run change; the trace knows its new projection from now on.

        Args:
            run_id: The run.
            trace: Its spans, those that were written now included.
        """
        before, after = trace.projected, trace.state.project()
        trace.projected = after
        differences = changes(before, after)
        for kind, records in differences.records.items():
            known = before.records[kind] if before is not None else {}
            new, given = self.new[kind], self.given[kind]
            for record_id, fields in records.items():
                into = new if trace.is_whole and record_id not in known else given
                into[run_id, record_id] = fields
        if not trace.is_whole or any(differences.removed.values()):
            self.cleared[run_id] = after
        self.runs[run_id, run_id] = {
            **after.run,
            **shown_of_run(run_id, after.records[Kind.PLAN], after.totals),
            "is_agent_work": after.is_agent_work,
        }
        trace.is_whole = True

    def ids_of_cleared(self, kind: Kind) -> list[UUID]:
        """Return the records of this kind that cleared runs have."""
        return [each for projected in self.cleared.values() for each in projected.records[kind]]
