"""A store in memory: writer and reader over dictionaries, gone with the process.

It keeps every promise of `tracer.store` within the process, and is the plain reading of them: the
contract tests hold the Postgres store to the same answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tracer.clock import Clock, utc_now
from tracer.errors import RecordNotFound, RunNotActive
from tracer.events import Event
from tracer.ids import DEFAULT_PROJECT_ID
from tracer.lineage import Payloads, TreeRows
from tracer.merge import RULES, merged, reduce_events
from tracer.otel.span_fields import root_plan_id
from tracer.otel.spans import Span
from tracer.records import (
    RECORDS,
    ActToolInfo,
    Kind,
    PlanExecutionRecord,
    Run,
    ThinkActRecord,
)
from tracer.status import Status
from tracer.storage.agreements import KIND_WORDS, REFUSED_RUNS, REFUSED_SPANS, check_status
from tracer.storage.ancestors import path_down_to
from tracer.storage.memory_lists import (
    run_is_wanted,
    tool_call_is_wanted,
    tool_call_preview,
)
from tracer.storage.memory_spans import KeptSpans, replace_records
from tracer.storage.memory_tree import Records, in_order, tree_rows
from tracer.storage.projected_runs import shown_of_run
from tracer.store import (
    AnyRecord,
    Cursor,
    Page,
    PlanWithOpener,
    Refusal,
    RunFilter,
    ToolCallFilter,
    ToolCallInPlace,
    ToolCallPreview,
    WriteAnswer,
)
from tracer.versions import Fields


@dataclass
class _KeptRun:
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

    def record(self, kind: Kind, record_id: UUID) -> Any:
        ids = {"root_plan_id": self.root_plan_id, RULES[kind].id_field: record_id}
        return RECORDS[kind](**{**self.parts[kind][record_id], **ids})

    def records(self) -> Records:
        return {
            kind: {record_id: self.record(kind, record_id) for record_id in part}
            for kind, part in self.parts.items()
        }

    def as_run(self) -> Run:
        shown = shown_of_run(self.root_plan_id, self.parts)
        return Run(root_plan_id=self.root_plan_id, **shown, **self.fields)


class MemoryStore:
    """`tracer.store.TraceWriter` and `TraceReader` over dictionaries."""

    def __init__(self, project_id: int = DEFAULT_PROJECT_ID, clock: Clock = utc_now) -> None:
        self._project_id = project_id
        self._clock = clock
        self._runs: dict[UUID, _KeptRun] = {}

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`; see `TraceWriter.write`."""
        now = self._clock()
        refused = [
            Refusal(index, code, REFUSED_RUNS[code])
            for index, event in enumerate(events)
            for code in [self._why_no_events(event.root_plan_id)]
            if code is not None
        ]
        refused_indices = {refusal.index for refusal in refused}
        accepted = [event for i, event in enumerate(events) if i not in refused_indices]
        reduced = reduce_events(accepted)
        for run_id in {event.root_plan_id for event in accepted}:
            self._touch(run_id, reduced[Kind.RUN].get((run_id, run_id), {}), now)
        for kind in RECORDS:
            for (run_id, record_id), version in reduced[kind].items():
                self._merge(self._runs[run_id], kind, record_id, version, now)
        return WriteAnswer(len(accepted), refused)

    def _why_no_events(self, run_id: UUID) -> str | None:
        kept = self._runs.get(run_id)
        if kept is None:
            return None
        return "run_deleted" if kept.is_deleted else "run_of_spans" if kept.is_of_spans else None

    async def write_spans(self, spans: Sequence[Span]) -> WriteAnswer:
        """Store `spans`; see `TraceWriter.write_spans`."""
        now = self._clock()
        refused: list[Refusal] = []
        by_run: dict[UUID, list[Span]] = {}
        for index, span in enumerate(spans):
            run_id = root_plan_id(span.trace_id)
            if run_id in self._runs and self._runs[run_id].is_deleted:
                refused.append(Refusal(index, "run_deleted", REFUSED_SPANS))
            else:
                by_run.setdefault(run_id, []).append(span)
        for run_id, more in by_run.items():
            is_new = run_id not in self._runs
            self._touch(run_id, {}, now)
            run = self._runs[run_id]
            run.is_of_spans |= is_new
            if run.spans.keep(more) and run.is_of_spans:
                self._project(run, now)
        return WriteAnswer(len(spans) - len(refused), refused)

    def _project(self, run: _KeptRun, now: datetime) -> None:
        projected = run.spans.projected()
        born = {"project_id": self._project_id, "recorded_at": now}
        replace_records(run.parts, projected, born, run.fields["revision"])
        run.fields |= projected.run
        run.is_agent_work = projected.is_agent_work

    def _touch(self, run_id: UUID, version: Fields, now: datetime) -> None:
        kept = self._runs.get(run_id)
        if kept is None:
            fields = {"project_id": self._project_id, "recorded_at": now, "revision": 0, "tags": []}
            kept = self._runs[run_id] = _KeptRun(run_id, fields)
        kept.fields = merged(Kind.RUN, kept.fields, version)
        kept.fields["revision"] += 1

    def _merge(
        self, run: _KeptRun, kind: Kind, record_id: UUID, version: Fields, now: datetime
    ) -> None:
        part = run.parts[kind]
        kept = part.get(record_id)
        changed = merged(kind, kept or {}, version)
        if kept is None:
            born = {"project_id": self._project_id, "recorded_at": now}
            part[record_id] = {**changed, **born, "revision": run.fields["revision"]}
        elif changed != kept:
            if changed["status"].is_ending:
                changed["abandoned_at"] = None
            changed["revision"] = run.fields["revision"]
            part[record_id] = changed

    async def delete_run(self, root_plan_id: UUID) -> None:
        """Delete a run and leave a tombstone; see `TraceWriter.delete_run`."""
        self._open_run(root_plan_id)
        self._runs[root_plan_id] = _KeptRun(root_plan_id, {}, is_deleted=True)

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record the wish to cancel a run; see `TraceWriter.request_cancel`."""
        kept = self._open_run(root_plan_id)
        if kept.as_run().status.is_ending:
            raise RunNotActive()
        if kept.fields.get("cancel_requested_at") is None:
            kept.fields["cancel_requested_at"] = self._clock()
            kept.fields["revision"] += 1
        return kept.as_run()

    async def list_runs(self, wanted: RunFilter, limit: int, cursor: str | None) -> Page[Run]:
        """Return a page of runs; see `TraceReader.list_runs`."""
        check_status(wanted.status)
        runs = [
            run
            for kept in self._open_runs()
            for run in [kept.as_run()]
            if kept.is_agent_work or wanted.other_traces
            if run_is_wanted(run, kept.records(), wanted)
        ]
        return _page(runs, "root_plan_id", limit, cursor)

    async def list_tool_calls(
        self, wanted: ToolCallFilter, limit: int, cursor: str | None
    ) -> Page[ToolCallPreview]:
        """Return a page of tool calls; see `TraceReader.list_tool_calls`."""
        check_status(wanted.status)
        calls = [
            tool_call_preview(call)
            for kept in self._open_runs()
            for call_id in kept.parts[Kind.TOOL_CALL]
            for call in [kept.record(Kind.TOOL_CALL, call_id)]
            if tool_call_is_wanted(call, wanted)
        ]
        return _page(calls, "tool_call_id", limit, cursor)

    async def read_run(self, root_plan_id: UUID) -> Run:
        """Return a run with its totals; see `TraceReader.read_run`."""
        return self._open_run(root_plan_id).as_run()

    async def read_plan(self, plan_id: UUID) -> PlanWithOpener:
        """Return a plan and the call that opened it; see `TraceReader.read_plan`."""
        kept = self._find(Kind.PLAN, plan_id)
        plan: PlanExecutionRecord = kept.record(Kind.PLAN, plan_id)
        if plan.tool_call_id is None:
            return PlanWithOpener(plan, None)
        return PlanWithOpener(plan, kept.record(Kind.TOOL_CALL, plan.tool_call_id))

    async def read_tree(self, plan_id: UUID, payloads: Payloads) -> TreeRows:
        """Return the rows of a plan and all below it; see `TraceReader.read_tree`."""
        kept = self._find(Kind.PLAN, plan_id)
        return tree_rows(kept.records(), plan_id, payloads, kept.fields["revision"])

    async def read_think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return a round whole; see `TraceReader.read_think_act`."""
        kept = self._find(Kind.THINK_ACT, think_act_id)
        think_act: ThinkActRecord = kept.record(Kind.THINK_ACT, think_act_id)
        return think_act

    async def read_tool_call(self, tool_call_id: UUID) -> ToolCallInPlace:
        """Return a call whole, in its place; see `TraceReader.read_tool_call`."""
        records = self._find(Kind.TOOL_CALL, tool_call_id).records()
        call = records[Kind.TOOL_CALL][tool_call_id]
        assert isinstance(call, ActToolInfo)
        by_place: dict[tuple[Kind, UUID], AnyRecord] = {
            (kind, record_id): record
            for kind, part in records.items()
            for record_id, record in part.items()
        }
        opened = [
            plan
            for plan in records[Kind.PLAN].values()
            if isinstance(plan, PlanExecutionRecord) and plan.tool_call_id == tool_call_id
        ]
        return ToolCallInPlace(call, path_down_to(call, by_place), in_order(Kind.PLAN, opened))

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return the runs to be cancelled; see `TraceReader.find_cancel_requests`."""
        return {
            run_id
            for run_id in root_plan_ids
            for kept in [self._runs.get(run_id)]
            if kept and (kept.is_deleted or kept.fields.get("cancel_requested_at") is not None)
        }

    async def check(self) -> None:
        """Return: memory always serves."""

    def _open_runs(self) -> Iterator[_KeptRun]:
        return (kept for kept in self._runs.values() if not kept.is_deleted)

    def _open_run(self, root_plan_id: UUID) -> _KeptRun:
        kept = self._runs.get(root_plan_id)
        if kept is None or kept.is_deleted:
            raise RecordNotFound("run", root_plan_id)
        return kept

    def _find(self, kind: Kind, record_id: UUID) -> _KeptRun:
        """Return the run with a record; where several have it, the first with no placeholder."""
        found = [kept for kept in self._runs.values() if record_id in kept.parts[kind]]
        if not found:
            raise RecordNotFound(KIND_WORDS[kind], record_id)
        return min(found, key=lambda kept: _preference(kept, kind, record_id))


def _preference(kept: _KeptRun, kind: Kind, record_id: UUID) -> tuple[bool, UUID]:
    return kept.parts[kind][record_id]["status"] is Status.UNKNOWN, kept.root_plan_id


def _page(records: list[Any], id_field: str, limit: int, cursor: str | None) -> Page[Any]:
    """Return the records that come after `cursor`, newest first."""
    places = {id(record): (record.recorded_at, getattr(record, id_field)) for record in records}
    if cursor is not None:
        after = Cursor.decode(cursor)
        edge = (after.recorded_at, after.record_id)
        records = [record for record in records if places[id(record)] < edge]
    records = sorted(records, key=lambda record: places[id(record)], reverse=True)
    if len(records) <= limit:
        return Page(records, None)
    return Page(records[:limit], Cursor(*places[id(records[limit - 1])]).encode())
