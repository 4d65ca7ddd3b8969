"""What the memory store keeps of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tracer.merge import RULES
from tracer.otel.work_records import totals_of
from tracer.records import RECORDS, Kind, Run
from tracer.status import Status
from tracer.storage.memory_spans import KeptSpans
from tracer.storage.memory_tree import Records
from tracer.storage.projected_runs import shown_of_run
from tracer.storage.run_changes import Removed
from tracer.store import Erasure
from tracer.text import storable
from tracer.versions import Fields


@dataclass
class KeptRun:
    """One run and everything below it."""

    root_plan_id: UUID
    fields: Fields
    parts: dict[Kind, dict[UUID, Fields]] = field(
        default_factory=lambda: {kind: {} for kind in RECORDS}
    )
    is_deleted: bool = False
    spans: KeptSpans = field(default_factory=KeptSpans)
    is_of_spans: bool = False
    is_agent_work: bool = True
    removed: dict[Removed, int] = field(default_factory=dict)
    """The records that a projection had no more, and the revision that it made."""

    def record(self, kind: Kind, record_id: UUID) -> Any:
        """Return one of the records below the run."""
        ids = {"root_plan_id": self.root_plan_id, RULES[kind].id_field: record_id}
        return RECORDS[kind](**{**self.parts[kind][record_id], **ids})

    def records(self) -> Records:
        """Return all of them."""
        return {
            kind: {record_id: self.record(kind, record_id) for record_id in part}
            for kind, part in self.parts.items()
        }

    def preference(self, kind: Kind, record_id: UUID) -> tuple[bool, UUID]:
        """Return what runs that have the same record are ordered by."""
        return self.parts[kind][record_id]["status"] is Status.UNKNOWN, self.root_plan_id

    def is_of(self, subject: str) -> bool:
        """Return whether it is one of a subject's runs."""
        return self.fields.get("subject") == storable(subject)

    def as_run(self) -> Run:
        """Return the run with what it shows of its records."""
        rounds, calls = self.parts[Kind.THINK_ACT], self.parts[Kind.TOOL_CALL]
        totals = totals_of(rounds.values(), calls.values())
        shown = shown_of_run(self.root_plan_id, self.parts[Kind.PLAN], totals)
        return Run(root_plan_id=self.root_plan_id, **shown, **self.fields)


def why_no_events(kept: KeptRun | None) -> str | None:
    """Return the code with which a run refuses events; None: it takes them."""
    if kept is None:
        return None
    return "run_deleted" if kept.is_deleted else "run_of_spans" if kept.is_of_spans else None


def bury(runs: dict[UUID, KeptRun], chosen: Sequence[KeptRun]) -> Erasure:
    """Leave tombstones of some runs, and return what there was."""
    for kept in chosen:
        runs[kept.root_plan_id] = KeptRun(kept.root_plan_id, {}, is_deleted=True)
    return Erasure(
        len(chosen),
        sum(len(part) for kept in chosen for part in kept.parts.values()),
        sum(len(kept.spans.by_id) for kept in chosen),
    )
