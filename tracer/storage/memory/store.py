"""A store in memory: dictionaries whose content is lost when the process ends.

This is the simplest implementation of `tracer.store`. The contract tests compare the Postgres store
with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from uuid import UUID

from tracer.clock import Clock, utc_now
from tracer.errors import RecordNotFound, RunNotActive
from tracer.lineage.tree import Payloads, Revision, TreeRows
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.logs import LogRecord, logs_of
from tracer.otel.otlp.span_fields import root_plan_id, run_ids_like
from tracer.otel.otlp.spans import Span
from tracer.records.events import Event
from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.leases import DEFAULT_TERMS, Lease, LeaseTerms
from tracer.records.merge import Fields, Reduced, merge_records, merged, partial_records
from tracer.records.pages import Page
from tracer.records.record_classes import (
    RECORDS,
    ActToolInfo,
    Kind,
    PlanExecutionRecord,
    Run,
    ThinkActRecord,
)
from tracer.records.run_histogram import RunHistogram
from tracer.records.run_previews import RunPreview
from tracer.records.status import Status
from tracer.records.tool_stats import TimeRange, ToolHistory, ToolStatsPage
from tracer.storage.ancestors import path_down_to
from tracer.storage.memory.leases import MemoryLeases
from tracer.storage.memory.lists import (
    histogram,
    page,
    run_is_wanted,
    sorted_page,
    tool_call_is_wanted,
    tool_call_preview,
)
from tracer.storage.memory.runs import StoredRun, delete_runs, refusal_of_events, refusal_of_spans
from tracer.storage.memory.spans import project_blocks
from tracer.storage.memory.stats import stats_page, tool_history
from tracer.storage.memory.tree import Records, changed_rows, in_order, tree_rows
from tracer.storage.run_changes import changes_between
from tracer.storage.run_previews import run_previews
from tracer.storage.store_rules import (
    KIND_WORDS,
    REFUSED_RUNS,
    REFUSED_SPANS,
    check_status,
    moment_of,
)
from tracer.storage.write_redaction import WriteRedactor
from tracer.store import (
    MAX_RUN_BYTES,
    AnyRecord,
    Behind,
    Erasure,
    Exchange,
    PlanWithOpener,
    Refusal,
    RunChanges,
    RunFilter,
    RunOrder,
    ToolCallFilter,
    ToolCallInPlace,
    ToolCallPreview,
    WholeRun,
    WriteAnswer,
)


class MemoryStore:
    """A store over dictionaries.

    Implements `TraceWriter`, `TraceReader`, `SpanProjection` and `LeaseKeeping`.
    """

    def __init__(
        self,
        project_id: int = DEFAULT_PROJECT_ID,
        clock: Clock = utc_now,
        terms: LeaseTerms = DEFAULT_TERMS,
        lease_clock: Clock = utc_now,
        redactor: WriteRedactor | None = None,
        *,
        lags: bool = False,
        max_run_bytes: int = MAX_RUN_BYTES,
    ) -> None:
        """Create an empty store.

        Args:
            project_id: The project that it belongs to.
            clock: The source of `recorded_at`.
            terms: How long leases last.
            lease_clock: The clock of heartbeats, and of the times when runs are due.
            redactor: Masks secrets; None: with the standard rules.
            lags: Whether spans wait until `project_due` or `catch_up` projects them. If false,
                `write_spans` projects spans before it returns.
            max_run_bytes: The most bytes of spans that a run may have.
        """
        self._project_id = project_id
        self._clock = clock
        self._leases = MemoryLeases(terms)
        self._lease_clock = lease_clock
        self._redactor = redactor or WriteRedactor()
        self._lags = lags
        self._max_run_bytes = max_run_bytes
        self._runs: dict[UUID, StoredRun] = {}

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`, unless their runs are deleted or arrived as spans."""
        accepted, refused = self._divided(self._redactor.events(events))
        reduced = merge_records(partial_records(accepted))
        for event in accepted:
            reduced[Kind.RUN].setdefault((event.root_plan_id, event.root_plan_id), {})
        self._write(reduced)
        self._leases.note(events, self._lease_clock())
        return WriteAnswer.without(refused, events)

    def _divided(self, written: Sequence[Event]) -> tuple[list[Event], list[Refusal]]:
        """Return the accepted items, and the refusals of the others."""
        codes = [refusal_of_events(self._runs.get(each.root_plan_id)) for each in written]
        return [each for each, code in zip(written, codes, strict=True) if code is None], [
            Refusal(index, code, REFUSED_RUNS[code])
            for index, code in enumerate(codes)
            if code is not None
        ]

    def _write(self, reduced: Reduced) -> None:
        now = self._clock()
        for (run_id, _), version in reduced[Kind.RUN].items():
            self._touch(run_id, version, now)
        for kind in RECORDS:
            for (run_id, record_id), version in reduced[kind].items():
                self._merge(self._runs[run_id], kind, record_id, version, now)

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store spans."""
        answer = self._accept(traces, self._clock(), self._lease_clock())
        if not self._lags:
            self._project_all()
        return answer

    def _accept(
        self, traces: Sequence[TraceSpans], now: datetime, seen_at: datetime | None
    ) -> WriteAnswer:
        refused: list[Refusal] = []
        count = 0
        for trace in self._redactor.traces(traces):
            run_id = root_plan_id(trace.trace_id)
            code = refusal_of_spans(self._runs.get(run_id), trace, self._max_run_bytes)
            places = range(count, count + trace.count)
            count = places.stop
            if code is not None:
                refused += [Refusal(index, code, REFUSED_SPANS[code]) for index in places]
                continue
            if run_id not in self._runs:
                run = self._new_run(run_id, now)
                run.fields["revision"] = 1
                # Unknown before the first projection.
                run.is_of_spans, run.is_agent_work = True, False
            run = self._runs[run_id]
            run.spans.add(trace, now, seen_at, pends=run.is_of_spans)
        return WriteAnswer.without(refused, range(count))

    async def project_due(self, now: datetime | None = None) -> int:
        """Project the runs that are due."""
        now = now or self._lease_clock()
        due = [run for run in self._open_runs() if run.spans.is_due(now)]
        for run in due:
            self._project(run)
        return len(due)

    async def catch_up(self, kind: Kind, record_id: UUID, *, seconds: float = 2.0) -> Behind | None:
        """Project the pending spans of a record's run now. Return None: none stay pending."""
        for run in self._open_runs():
            # Ids of records that are made from spans begin like the trace id.
            if run.root_plan_id.bytes[:6] == record_id.bytes[:6] or (
                kind is not Kind.RUN and record_id in run.parts[kind]
            ):
                self._project(run)
        return None

    def _project_all(self) -> None:
        for run in self._open_runs():
            self._project(run)

    def _project(self, run: StoredRun) -> None:
        """Project the pending blocks of a run, if there are any."""
        pending = run.spans.pending
        if not pending:
            return
        self._project_all_of(run)
        for other in self._open_runs():
            if run.root_plan_id.bytes not in other.spans.sessions:
                continue
            if other.spans.pending:
                self._project(other)
            else:
                self._project_all_of(other)
        for seen_at in [block.seen_at for block in pending if block.seen_at is not None][-1:]:
            self._leases.renew_run(run.root_plan_id, seen_at)

    def _project_all_of(self, run: StoredRun) -> None:
        run.put(project_blocks(run.spans, self._messages_of))

    def _messages_of(self, session: bytes) -> list[bytes]:
        run = self._runs.get(UUID(bytes=session))
        return [] if run is None else run.spans.messages

    def _new_run(self, run_id: UUID, recorded_at: datetime) -> StoredRun:
        fields = {"project_id": self._project_id, "recorded_at": recorded_at}
        run = self._runs[run_id] = StoredRun(run_id, {**fields, "revision": 0, "tags": []})
        return run

    def _touch(self, run_id: UUID, version: Fields, now: datetime) -> None:
        stored_run = self._runs.get(run_id)
        if stored_run is None:
            stored_run = self._new_run(run_id, now)
        stored_run.fields = merged(Kind.RUN, stored_run.fields, version)
        stored_run.fields["revision"] += 1

    def _merge(
        self,
        run: StoredRun,
        kind: Kind,
        record_id: UUID,
        version: Fields,
        now: datetime,
    ) -> None:
        part = run.parts[kind]
        stored_run = part.get(record_id)
        changed = merged(kind, stored_run or {}, version)
        changed.pop("abandoned_at", None)
        if stored_run is None:
            born = {"project_id": self._project_id, "recorded_at": now}
            part[record_id] = {**changed, **born, "revision": run.fields["revision"]}
        elif changed != stored_run:
            changed["revision"] = run.fields["revision"]
            part[record_id] = changed

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease."""
        return self._leases.renew(recorder_id, self._lease_clock())

    async def now(self) -> datetime:
        """Return the time of the clock that decides when leases expire."""
        return self._lease_clock()

    async def expire_leases(self, since: datetime) -> None:
        """Mark recorders as dead if their leases expired, or as alive if they reported again."""
        self._leases.expire(self._open_runs(), since, self._lease_clock())

    async def delete_run(self, root_plan_id: UUID) -> None:
        """Delete a run and leave a tombstone."""
        delete_runs(self._runs, [self._open_run(root_plan_id)])

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete every run of a subject."""
        kept_as = self._redactor.subject(subject)
        self._project_all()  # only records name the subject of a run
        return delete_runs(
            self._runs,
            [stored_run for stored_run in self._open_runs() if stored_run.is_of(kept_as)],
        )

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run."""
        stored_run = self._open_run(root_plan_id)
        if stored_run.as_run().status.is_ending:
            raise RunNotActive()
        if stored_run.fields.get("cancel_requested_at") is None:
            stored_run.fields["cancel_requested_at"] = self._clock()
            stored_run.fields["revision"] += 1
        return stored_run.as_run()

    async def list_runs(
        self,
        wanted: RunFilter,
        limit: int,
        cursor: str | None,
        order: RunOrder = RunOrder.LATEST,
    ) -> Page[RunPreview]:
        """Return a page of runs."""
        runs = self._runs_like(wanted)
        if order is RunOrder.LATEST:
            run_page = page(runs, "root_plan_id", limit, cursor)
        else:
            run_page = sorted_page(runs, order, limit, cursor)
        return replace(run_page, items=self._previews(run_page.items))

    async def count_runs(self, wanted: RunFilter) -> RunHistogram:
        """Count the matching runs."""
        return histogram(self._runs_like(wanted), wanted)

    def _runs_like(self, wanted: RunFilter) -> list[Run]:
        check_status(wanted.status)
        return [
            run
            for stored_run in self._open_runs()
            for run in [stored_run.as_run()]
            if stored_run.is_agent_work or wanted.other_traces
            if run_is_wanted(run, stored_run.records(), wanted)
        ]

    async def list_tool_calls(
        self, wanted: ToolCallFilter, limit: int, cursor: str | None
    ) -> Page[ToolCallPreview]:
        """Return a page of tool calls."""
        check_status(wanted.status)
        calls = [
            tool_call_preview(call)
            for stored_run in self._open_runs()
            for call_id in stored_run.parts[Kind.TOOL_CALL]
            for call in [stored_run.record(Kind.TOOL_CALL, call_id)]
            if tool_call_is_wanted(call, wanted)
        ]
        return page(calls, "tool_call_id", limit, cursor)

    async def read_run(self, root_plan_id: UUID) -> RunPreview:
        """Return a run with its totals."""
        return self._previews([self._open_run(root_plan_id).as_run()])[0]

    def _previews(self, runs: Sequence[Run]) -> list[RunPreview]:
        stored_run = [self._runs[run.root_plan_id] for run in runs]
        seen = {each.root_plan_id: self._leases.seen_at(each) for each in stored_run}
        return run_previews(
            runs,
            {each.root_plan_id: each.texts() for each in stored_run},
            chain.from_iterable(each.notable() for each in stored_run),
            {run_id: at for run_id, at in seen.items() if at is not None},
        )

    async def read_plan(self, plan_id: UUID) -> PlanWithOpener:
        """Return a plan and the call that opened it."""
        stored_run = self._find(Kind.PLAN, plan_id)
        plan: PlanExecutionRecord = stored_run.record(Kind.PLAN, plan_id)
        opener = None
        if plan.tool_call_id is not None:
            opener = stored_run.record(Kind.TOOL_CALL, plan.tool_call_id)
        return PlanWithOpener(plan, opener, self._followed(stored_run.as_run(), plan))

    def _followed(self, run: Run, plan: PlanExecutionRecord) -> ActToolInfo | None:
        """Return the tool call whose end led to `plan`; None if it is unknown.

        The call belongs to another run of the session. The plan names it by its provider call id.
        If several calls match, the latest one is returned.
        """
        if plan.follows_provider_call_id is None or run.session_id is None:
            return None
        followed: list[ActToolInfo] = [
            call
            for other in self._open_runs()
            if (each := other.as_run()).session_id == run.session_id
            and each.root_plan_id != run.root_plan_id
            for call_id in other.parts[Kind.TOOL_CALL]
            for call in [other.record(Kind.TOOL_CALL, call_id)]
            if call.provider_call_id == plan.follows_provider_call_id
        ]
        return max(
            followed,
            key=lambda call: (moment_of(call), call.tool_call_id),
            default=None,
        )

    async def read_tree(self, plan_id: UUID, payloads: Payloads) -> TreeRows:
        """Return the rows of a plan and everything below it."""
        stored_run = self._find(Kind.PLAN, plan_id)
        return tree_rows(stored_run.records(), plan_id, payloads, _revision(stored_run))

    async def read_messages(self, root_plan_id: UUID) -> dict[UUID, str]:
        """Return the input messages of a run's model calls, by think-act id."""
        stored_run = self._runs.get(root_plan_id)
        rounds = stored_run.parts[Kind.THINK_ACT] if stored_run else {}
        return {
            think_act_id: fields["messages"]
            for think_act_id, fields in rounds.items()
            if fields.get("messages") is not None
        }

    async def read_message_bytes(self, root_plan_id: UUID) -> int:
        """Return the total size of a run's input messages in bytes."""
        return sum(len(text.encode()) for text in (await self.read_messages(root_plan_id)).values())

    async def read_revision(self, kind: Kind, record_id: UUID) -> Revision:
        """Return the revision of a record's run."""
        stored_run = self._open_run(record_id) if kind is Kind.RUN else self._find(kind, record_id)
        return _revision(stored_run)

    async def read_revisions(self, root_plan_ids: Collection[UUID]) -> dict[UUID, int]:
        """Return the revisions of runs."""
        return {
            stored_run.root_plan_id: stored_run.fields["revision"]
            for stored_run in self._open_runs()
            if stored_run.root_plan_id in root_plan_ids
        }

    async def read_changes(self, root_plan_id: UUID, after: int, limit: int) -> RunChanges:
        """Return the changes of a run since the revision `after`."""
        stored_run = self._open_run(root_plan_id)
        changed = changed_rows(stored_run.records(), after)
        removed = [place for place, revision in stored_run.removed.items() if revision > after]
        in_id_order = sorted(removed, key=lambda place: place[1])
        return changes_between(after, stored_run.fields["revision"], changed, in_id_order, limit)

    async def read_think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return one think-act."""
        stored_run = self._find(Kind.THINK_ACT, think_act_id)
        think_act: ThinkActRecord = stored_run.record(Kind.THINK_ACT, think_act_id)
        if think_act.offered_tools is None and think_act.offered_tools_from is not None:
            holder = stored_run.parts[Kind.THINK_ACT].get(think_act.offered_tools_from, {})
            think_act.offered_tools = holder.get("offered_tools")
        return think_act

    async def read_tool_call(self, tool_call_id: UUID) -> ToolCallInPlace:
        """Return one call with its lineage."""
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

    async def read_whole_run(self, root_plan_id: UUID) -> WholeRun:
        """Return all stored data of a run."""
        stored_run = self._open_run(root_plan_id)
        return WholeRun(
            run=stored_run.as_run(),
            source="spans" if stored_run.is_of_spans else "events",
            records={
                kind: [part[record_id] for record_id in sorted(part)]
                for kind, part in stored_run.records().items()
            },
            spans=await self.read_spans(root_plan_id),
            logs=logs_of(stored_run.spans.messages),
        )

    async def find_runs_like(self, record_id: UUID) -> list[UUID]:
        """Return the runs that may contain a record, judging by the first bytes of its id."""
        first, last = run_ids_like(record_id)
        return sorted(
            run.root_plan_id
            for run in self._open_runs()
            if run.is_of_spans and first <= run.root_plan_id <= last
        )[:10]

    async def read_spans(
        self, root_plan_id: UUID, span_ids: Collection[bytes] | None = None
    ) -> list[Span]:
        """Return the spans of a run."""
        return self._open_run(root_plan_id).spans.by_start(span_ids)

    async def read_logs(self, root_plan_id: UUID) -> list[LogRecord]:
        """Return the log records of a run."""
        spans = self._open_run(root_plan_id).spans
        of_sessions = [each for session in spans.sessions for each in self._messages_of(session)]
        return logs_of([*spans.messages, *of_sessions])

    async def read_leases(self, root_plan_id: UUID) -> list[Lease]:
        """Return the leases of a run's recorders."""
        return self._leases.of_run(self._open_run(root_plan_id))

    async def read_tool_stats(self, period: TimeRange, name: str | None = None) -> ToolStatsPage:
        """Return the statistics of each tool."""
        return stats_page(self._all_records(), period, name)

    async def read_tool_history(self, name: str, period: TimeRange) -> ToolHistory:
        """Return the statistics of a tool over time."""
        return tool_history(self._all_records(), name, period)

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the requests and answers of runs that have ended."""
        runs = {stored_run.root_plan_id: stored_run for stored_run in self._open_runs()}
        plans = [
            runs[run_id].record(Kind.PLAN, run_id)
            for run_id in root_plan_ids
            if run_id in runs and run_id in runs[run_id].parts[Kind.PLAN]
        ]
        return [
            Exchange(
                plan.root_plan_id,
                plan.user_request,
                plan.summary if plan.status is Status.SUCCEEDED else None,
            )
            for plan in plans
            if plan.status.is_ending and plan.user_request is not None
        ]

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return the runs whose cancellation or deletion was requested."""
        return {
            run_id
            for run_id in root_plan_ids
            for stored_run in [self._runs.get(run_id)]
            if stored_run
            and (stored_run.is_deleted or stored_run.fields.get("cancel_requested_at") is not None)
        }

    async def check(self) -> None:
        """Do nothing, because the memory store is always available."""

    def _all_records(self) -> list[Records]:
        return [stored_run.records() for stored_run in self._open_runs()]

    def _open_runs(self) -> Iterator[StoredRun]:
        return (stored_run for stored_run in self._runs.values() if not stored_run.is_deleted)

    def _open_run(self, root_plan_id: UUID) -> StoredRun:
        stored_run = self._runs.get(root_plan_id)
        if stored_run is None or stored_run.is_deleted:
            raise RecordNotFound("run", root_plan_id)
        return stored_run

    def _find(self, kind: Kind, record_id: UUID) -> StoredRun:
        """Return the run that contains a record.

        If several runs contain the record, runs in which it is a placeholder are used last.

        Raises:
            RecordNotFound: No run contains the record.
        """
        candidates = [
            stored_run for stored_run in self._runs.values() if record_id in stored_run.parts[kind]
        ]
        if not candidates:
            raise RecordNotFound(KIND_WORDS[kind], record_id)
        return min(candidates, key=lambda stored_run: stored_run.preference(kind, record_id))


def _revision(stored_run: StoredRun) -> Revision:
    fields = stored_run.fields
    return Revision(
        stored_run.root_plan_id, fields["revision"], fields["recorded_at"], stored_run.spans.size
    )
