"""A run in the memory store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.projection.project import totals_of
from tracer.records.merge import RULES, Fields
from tracer.records.record_classes import FROM_ROOT_PLAN, RECORDS, Kind, Run
from tracer.records.run_previews import NotableRecord, RunTexts
from tracer.records.status import Status
from tracer.storage.memory.spans import Changes, StoredRunSpans
from tracer.storage.memory.tree import Records
from tracer.storage.run_changes import Removed
from tracer.store import Erasure
from tracer.text import storable


@dataclass
class StoredRun:
    """One run with all its records."""

    root_plan_id: UUID
    fields: Fields
    parts: dict[Kind, dict[UUID, Fields]] = field(
        default_factory=lambda: {kind: {} for kind in RECORDS}
    )
    is_deleted: bool = False
    spans: StoredRunSpans = field(default_factory=StoredRunSpans)
    is_of_spans: bool = False
    is_agent_work: bool = True
    removed: dict[Removed, int] = field(default_factory=dict)
    """The records that projections removed, each with the run's revision at the last removal."""
    abandoned: dict[UUID, datetime] = field(default_factory=dict)
    """When the lease of each dead recorder expired. The keys are the ids that `whose` returns."""

    def record(self, kind: Kind, record_id: UUID) -> Any:
        """Return one record of the run."""
        ids = {"root_plan_id": self.root_plan_id, RULES[kind].id_field: record_id}
        fields = self.parts[kind][record_id]
        return RECORDS[kind](**{**fields, **ids, "abandoned_at": self.abandoned_at(fields)})

    def whose(self, fields: Fields) -> UUID:
        """Return the id under which a record's recorder is listed in `abandoned`.

        This is the run's id if the record names no recorder. It is also the run's id if the run
        arrived as spans: such records may name a recorder that wrote to another store.
        """
        recorder_id: UUID | None = None if self.is_of_spans else fields.get("recorder_id")
        return recorder_id or self.root_plan_id

    def abandoned_at(self, fields: Fields) -> datetime | None:
        """Return when the lease of a record's recorder expired.

        Return None if the lease did not expire, or if the record has ended.
        """
        return self.abandoned.get(self.whose(fields)) if is_unfinished(fields) else None

    def records(self) -> Records:
        """Return all records."""
        return {
            kind: {record_id: self.record(kind, record_id) for record_id in part}
            for kind, part in self.parts.items()
        }

    def preference(self, kind: Kind, record_id: UUID) -> tuple[bool, UUID]:
        """Return a sort key for choosing between runs that have a record of the same id.

        The run with the lowest key is preferred. Runs in which the record is a placeholder come
        last.
        """
        return self.parts[kind][record_id]["status"] is Status.UNKNOWN, self.root_plan_id

    def is_of(self, subject: str) -> bool:
        """Return whether the run belongs to a subject."""
        return self.fields.get("subject") == storable(subject)

    def as_run(self) -> Run:
        """Return the run, including the fields that derive from its records."""
        root_plan = self.parts[Kind.PLAN].get(self.root_plan_id, {})
        shown = {name: root_plan[name] for name in FROM_ROOT_PLAN if name in root_plan}
        totals = totals_of(self.parts)
        if root_plan:
            shown["abandoned_at"] = self.abandoned_at(root_plan)
        return Run(root_plan_id=self.root_plan_id, **shown, **totals, **self.fields)

    def texts(self) -> RunTexts:
        """Return the texts of the run's preview."""
        plans = self.parts[Kind.PLAN]
        root_plan = plans.get(self.root_plan_id, {})
        return RunTexts(
            root_plan.get("user_request"),
            root_plan.get("summary"),
            len(plans.keys() - {self.root_plan_id}),
        )

    def notable(self) -> Iterator[NotableRecord]:
        """Yield the failed and the running records of the run."""
        for kind, part in self.parts.items():
            for record_id, fields in part.items():
                if fields["status"] in (Status.FAILED, Status.RUNNING):
                    yield self._notable(kind, record_id, fields)

    def _notable(self, kind: Kind, record_id: UUID, fields: Fields) -> NotableRecord:
        get = fields.get
        names = (get(field) for field in ("agent_name", "name", "model", "requested_model"))
        is_plan = kind is Kind.PLAN
        return NotableRecord(
            root_plan_id=self.root_plan_id,
            kind=kind,
            record_id=record_id,
            has_failed=fields["status"] is Status.FAILED,
            name=next((name for name in names if name is not None), None),
            started_at=get("started_at"),
            finished_at=get("finished_at"),
            reason=get("reason"),
            error_type=get("error_type"),
            error_message=get("error_message"),
            arguments=get("arguments"),
            tool_call=get("tool_call_id" if is_plan else "parent_tool_call_id"),
            think_act=get("think_act_id"),
            step=get("opened_by_step_id" if is_plan else "step_id"),
            plan=get("parent_plan_id" if is_plan else "plan_id"),
        )

    def put(self, changes: Changes) -> None:
        """Apply the changes of a projection to the run and its records."""
        if not changes.are_visible:
            return
        revision = self.fields["revision"] = self.fields["revision"] + 1
        if changes.run is not None:
            requests = (self.fields.get("cancel_requested_at"), changes.run["cancel_requested_at"])
            self.fields |= changes.run
            self.fields["cancel_requested_at"] = min((at for at in requests if at), default=None)
        self.is_agent_work = changes.is_agent_work
        for kind, changed in changes.changed.items():
            part = self.parts[kind]
            for record_id, (fields, recorded_at) in changed.items():
                born = {"project_id": self.fields["project_id"], "recorded_at": recorded_at}
                part[record_id] = {**born, **part.get(record_id, {}), **fields}
                part[record_id]["revision"] = revision
        for kind, record_id in changes.removed:
            del self.parts[kind][record_id]
            self.removed[kind, record_id] = revision


def is_unfinished(fields: Fields) -> bool:
    """Return whether a record is pending or running.

    An unfinished record counts as abandoned if its recorder is dead.
    """
    return fields["status"] in (Status.PENDING, Status.RUNNING)


def refusal_of_events(stored_run: StoredRun | None) -> str | None:
    """Return the code with which a run rejects events; None if it accepts them."""
    if stored_run is None:
        return None
    return (
        "run_deleted"
        if stored_run.is_deleted
        else "run_of_spans"
        if stored_run.is_of_spans
        else None
    )


def refusal_of_spans(stored_run: StoredRun | None, trace: TraceSpans, max_bytes: int) -> str | None:
    """Return the code with which a run rejects the spans of a trace; None if it accepts them."""
    if stored_run is not None and stored_run.is_deleted:
        return "run_deleted"
    spans = StoredRunSpans() if stored_run is None else stored_run.spans
    return "run_too_large" if spans.exceeds(trace, max_bytes) else None


def delete_runs(runs: dict[UUID, StoredRun], chosen: Sequence[StoredRun]) -> Erasure:
    """Replace runs by tombstones, and count the deleted runs, records and spans."""
    sessions = {session for stored_run in chosen for session in stored_run.spans.sessions}
    for stored_run in chosen:
        runs[stored_run.root_plan_id] = StoredRun(stored_run.root_plan_id, {}, is_deleted=True)
    for stored_run in runs.values():
        sessions -= stored_run.spans.sessions
    unnamed = [runs[run_id] for each in sessions if (run_id := UUID(bytes=each)) in runs]
    for stored_run in unnamed:
        runs[stored_run.root_plan_id] = StoredRun(stored_run.root_plan_id, {}, is_deleted=True)
    chosen = [*chosen, *unnamed]
    return Erasure(
        len(chosen),
        sum(len(part) for stored_run in chosen for part in stored_run.parts.values()),
        sum(stored_run.spans.count for stored_run in chosen),
    )
