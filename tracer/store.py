"""What every store promises: `TraceWriter` and `TraceReader`.

A store belongs to one project; records of other projects do not exist for it. The promises below
are kept by each implementation (`tracer.storage`) and checked by `tests/contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from pydantic import field_validator

from tracer.lineage.nodes import PAYLOAD_FIELDS, Row
from tracer.lineage.tree import Payloads, Revision, TreeRows
from tracer.records.events import Event
from tracer.records.leases import Lease
from tracer.records.pages import Page
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    Kind,
    PlanExecutionRecord,
    Run,
    ThinkActRecord,
)
from tracer.records.run_previews import RunPreview
from tracer.records.tool_stats import TimeRange, ToolHistory, ToolStatsPage
from tracer.text import preview

if TYPE_CHECKING:  # recording events needs no protobuf
    from tracer.otel.otlp.blocks import TraceSpans
    from tracer.otel.otlp.logs import LogRecord
    from tracer.otel.otlp.spans import Span


@dataclass(frozen=True)
class Refusal:
    """An event, span or log record that was not stored, and why."""

    index: int
    """Its place among those that were written, from 0."""
    code: str
    """Stable: `run_deleted`, or what the store could not hold."""
    detail: str
    """A sentence for people."""


@dataclass(frozen=True)
class WriteAnswer:
    """What became of the events, spans or log records that were written."""

    stored: int
    refused: list[Refusal] = field(default_factory=list)
    """Those that were not stored, in the order in which they were written."""

    @classmethod
    def without(cls, refused: Iterable[Refusal], written: Sequence[object]) -> WriteAnswer:
        """Return the answer to a write of which all was stored but for what was refused."""
        in_order = sorted(refused, key=lambda refusal: refusal.index)
        return cls(len(written) - len(in_order), in_order)


@dataclass(frozen=True)
class Erasure:
    """What was deleted because somebody asked for it, and what is left of it."""

    runs: int = 0
    records: int = 0
    """Plans, steps, rounds and tool calls."""
    spans: int = 0
    """OpenTelemetry spans and log records as they came."""
    left: int = 0
    """What is still there of these runs wherever there may be something: 0."""
    unprojected: list[UUID] = field(default_factory=list)
    """Runs of the project with spans that could not be projected: their subject is not known."""

    def __add__(self, other: Erasure) -> Erasure:
        return Erasure(
            self.runs + other.runs,
            self.records + other.records,
            self.spans + other.spans,
            self.left + other.left,
            self.unprojected + other.unprojected,
        )


class TraceWriter(Protocol):
    """The one door for events, spans and log records."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`; when this returns, those not refused survive the death of anything.

        Order-free and idempotent: any permutation, split or repetition of the same events ends
        in the same records (`revision` and `recorded_at` aside). A parent that has not come yet
        is stored as a placeholder. A bad event is refused without failing its neighbours.
        An empty sequence is stored at once.

        Raises:
            StoreUnavailable: Nothing is known to be stored; writing the same again is safe.
        """

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store OpenTelemetry spans and log records. The next projection makes records of them.

        As durable, order-free and idempotent as `write`. Of two versions of a span readers see the
        ended one, then the later end, then the greater bytes. Equal log records are one. The
        records of a run that arrived this way are the projection of all of it (`SpanProjection`).
        Spans and log records of a run that arrived as events are stored and never projected.

        Args:
            traces: The spans and log records, grouped by trace.

        Returns:
            Counts and places of single items, in the order of `traces`. Spans of deleted runs are
            rejected (`run_deleted`), and spans of a run that has reached `MAX_RUN_BYTES`
            (`run_too_large`).

        Raises:
            StoreUnavailable: As above.
        """

    async def renew(self, recorder_id: UUID) -> Lease:
        """Note that a recorder lives, as its events do, and return until when that counts.

        What it leaves open when its lease runs out is abandoned until its next sign of life.

        Raises:
            StoreUnavailable: As above.
        """

    async def delete_run(self, root_plan_id: UUID) -> None:
        """Delete a run with everything below it and leave a tombstone that refuses its late events.

        Raises:
            RecordNotFound: There is no such run, or it was deleted before.
            StoreUnavailable: As above.
        """

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete every run of a subject, as `delete_run` does, and what their conversations keep.

        Runs that are pending are projected first. Runs that cannot be projected, and runs whose
        root plan has not arrived, have no subject yet: the former are named in the answer, and
        asking again deletes both once their subject is known.

        Raises:
            StoreUnavailable: As above; what is deleted stays so. Asking again goes on with it.
        """

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record the wish that the run be cancelled, and return the run.

        The wish is carried out by the process that runs it. Wishing again changes nothing.

        Raises:
            RecordNotFound: There is no such run.
            RunNotActive: It has ended.
            StoreUnavailable: As above.
        """


MAX_RUN_BYTES = 2 * 10**9
"""The most bytes of spans that a run may have, uncompressed."""


@dataclass(frozen=True)
class Behind:
    """The spans of a run that its records do not include yet."""

    spans: int
    since: datetime
    """When the first of them arrived."""
    error: str | None = None
    """Why they cannot be turned into records; None: they will be shortly."""


class SpanProjection(Protocol):
    """The side of a store that turns stored spans into records."""

    async def project_due(self, now: datetime | None = None) -> int:
        """Project the runs that are due, of all projects, and return how many were projected.

        A run is due when no span of it has arrived for 100 ms or the oldest has waited for 1 s, and
        ten times the duration of its last projection has passed. Any number of callers may do this
        at the same time.

        Args:
            now: The time; None: the database's own clock.

        Raises:
            StoreUnavailable: As `TraceWriter` does.
        """

    async def catch_up(
        self, kind: Kind, record_id: UUID, *, seconds: float = 2.0, any_size: bool = False
    ) -> Behind | None:
        """Project the pending spans of the run that a record belongs to, before it is read.

        Waits if a projection of the run is in progress.

        Args:
            kind: The kind of the record, or `Kind.RUN`.
            record_id: Its id. No such record means that nothing is pending.
            seconds: How long to wait.
            any_size: Whether to wait even if more than 5,000 spans are pending.

        Returns:
            What is still pending, if the records are behind; None if they include every span that
            was accepted before the call.
        """


@dataclass(frozen=True)
class RunFilter:
    """Which runs a list shows; what is None does not matter."""

    status: str | None = None
    """As shown: one of `Status`, or `abandoned`."""
    agent: str | None = None
    """The name of an agent that took part."""
    tool: str | None = None
    """The name of a tool that was called."""
    session: str | None = None
    subject: str | None = None
    tag: str | None = None
    """The conversation that it belongs to, whom it is about, one of its tags: each as it has it."""
    q: str | None = None
    """Text within the question, the answer, titles, tool and agent names or errors, upper and lower
    case alike."""
    since: datetime | None = None
    """Started (or else recorded) at this moment or later."""
    until: datetime | None = None
    """Started (or else recorded) before this moment."""
    other_traces: bool = False
    """Whether to show traces too that have no agent, model or tool call."""


@dataclass(frozen=True)
class ToolCallFilter:
    """Which tool calls a list shows; what is None does not matter."""

    name: str | None = None
    status: str | None = None
    root_plan_id: UUID | None = None
    provider_call_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


AnyRecord = PlanExecutionRecord | AgentExecutionRecord | ThinkActRecord | ActToolInfo


@dataclass(frozen=True)
class PlanWithOpener:
    """A plan and the tool call that opened it."""

    plan: PlanExecutionRecord
    opener: ActToolInfo | None
    followed: ActToolInfo | None = None
    """The call of another run of the session whose end the plan follows, if that run is known."""


@dataclass(frozen=True)
class ToolCallInPlace:
    """A tool call, what lies above it and what it opened."""

    call: ActToolInfo
    lineage: list[AnyRecord]
    """From the root plan down to the call itself, as far as it is known."""
    sub_plans: list[PlanExecutionRecord]
    """In order of position, then id."""


@dataclass(frozen=True)
class RunChanges:
    """What became of a run since an earlier state of it."""

    revision: int
    """The run's revision that this leads to."""
    changed: Sequence[Row] = field(default_factory=list)
    """The rows of the records that are new or changed, payloads as previews."""
    removed: list[tuple[Kind, UUID]] = field(default_factory=list)
    """The records that are there no more."""
    is_reset: bool = False
    """Whether that is too far back, or no state of this run: what is here is nothing, and the tree
    has to be read anew."""


class ToolCallPreview(ActToolInfo):
    """A tool call as a list shows it: of each long string the first 2 kB, and its size."""

    arguments_bytes: int | None = None
    arguments_truncated: bool = False
    effective_arguments_bytes: int | None = None
    effective_arguments_truncated: bool = False
    result_bytes: int | None = None
    result_truncated: bool = False
    state_changes_bytes: int | None = None
    state_changes_truncated: bool = False
    late_result_bytes: int | None = None
    late_result_truncated: bool = False

    @field_validator(*PAYLOAD_FIELDS[Kind.TOOL_CALL], "error_message", "error_stack")
    @classmethod
    def _cut(cls, text: str | None) -> str | None:
        return None if text is None else preview(text)


@dataclass(frozen=True)
class Exchange:
    """The user's request of a run and the agents' answer, in stored form."""

    root_plan_id: UUID
    request: str
    answer: str | None
    """None unless the run succeeded."""


@dataclass(frozen=True)
class WholeRun:
    """Everything that a store keeps of a run."""

    run: Run
    source: str
    """Where its records come from: `events`, or `spans` that they are projected from."""
    is_agent_work: bool
    """Whether there is any agent, model or tool call in it."""
    records: Mapping[Kind, Sequence[AnyRecord]]
    """All records below the run whole, by kind, in the order of their ids."""
    spans: Sequence[Span]
    """The spans kept under it, by (start, span id)."""
    logs: Sequence[LogRecord] = ()
    """The log records kept under it, by time."""


class TraceReader(Protocol):
    """The one door out. Every reading sees one state of the database.

    Each method raises `StoreUnavailable` when the store does not answer.
    """

    async def list_runs(
        self, wanted: RunFilter, limit: int, cursor: str | None
    ) -> Page[RunPreview]:
        """Return a page of runs, latest start first.

        A run that has no start counts from its first `recorded_at`. Runs of one moment are ordered
        by id. Deleted runs are left out. A run that is recorded while pages are turned does not
        disturb the pages that follow.

        Raises:
            BadCursor: `cursor` is not one that a list gave.
        """

    async def read_run(self, root_plan_id: UUID) -> RunPreview:
        """Return a run with its totals.

        Raises:
            RecordNotFound: There is none, or it was deleted.
        """

    async def read_plan(self, plan_id: UUID) -> PlanWithOpener:
        """Return a plan whole. Raises `RecordNotFound`."""

    async def read_tree(self, plan_id: UUID, payloads: Payloads) -> TreeRows:
        """Return the rows of a plan and of everything below it, for `lineage.build_tree`.

        Of a root plan, all rows of its run, the unplaced ones included. Takes a constant number
        of queries, at most six, whatever the run's size.

        Raises:
            RecordNotFound: There is no such plan.
        """

    async def read_revision(self, kind: Kind, record_id: UUID) -> Revision:
        """Return the revision of the run that a record is of, by one cheap query.

        Of which run where several have the record, as the reading of the record itself goes.

        Raises:
            RecordNotFound: There is no such record.
        """

    async def read_revisions(self, root_plan_ids: Collection[UUID]) -> dict[UUID, int]:
        """Return the revisions of those of the runs that there are."""

    async def read_changes(self, root_plan_id: UUID, after: int, limit: int) -> RunChanges:
        """Return what changed in a run since its revision was `after`.

        Folded into the rows read at that revision, it gives the rows of its own revision, whatever
        was written in between.

        Args:
            root_plan_id: The run.
            after: A revision that the run had, or 0 for before it was.
            limit: How many changes there may be; more are a reset.

        Raises:
            RecordNotFound: There is no such run, or it was deleted.
        """

    async def read_messages(self, root_plan_id: UUID) -> dict[UUID, str]:
        """Return what the models were given in each round of a run; nothing where there is none."""

    async def read_think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return a round whole, messages included. Raises `RecordNotFound`."""

    async def read_tool_call(self, tool_call_id: UUID) -> ToolCallInPlace:
        """Return a call whole, with its lineage and sub-plans. Raises `RecordNotFound`."""

    async def list_tool_calls(
        self, wanted: ToolCallFilter, limit: int, cursor: str | None
    ) -> Page[ToolCallPreview]:
        """Return a page of tool calls across runs, newest first (by start, then id).

        Of long strings it has the start alone, so that a page is light whatever the calls returned.

        Raises:
            BadCursor: `cursor` is not one that a list gave.
        """

    async def read_whole_run(self, root_plan_id: UUID) -> WholeRun:
        """Return everything of a run. Takes a constant number of queries.

        Raises:
            RecordNotFound: There is no such run, or it was deleted.
        """

    async def find_runs_like(self, record_id: UUID) -> list[UUID]:
        """Return the runs of spans that the id of a record may have been made for.

        Ids made from spans begin with six bytes of the trace id.

        Returns:
            At most ten, by id; mostly one or none.
        """

    async def read_spans(
        self, root_plan_id: UUID, span_ids: Collection[bytes] | None = None
    ) -> list[Span]:
        """Return the OpenTelemetry spans kept under a run, by (start, span id).

        They are what the run came as, or what others told of a run that came as events.

        Args:
            root_plan_id: The run.
            span_ids: Which of them; None: all.

        Raises:
            RecordNotFound: There is no such run, or it was deleted.
        """

    async def read_logs(self, root_plan_id: UUID) -> list[LogRecord]:
        """Return the OpenTelemetry log records of a run, by time.

        They are those kept under it, and those of its sessions that name no trace.

        Raises:
            RecordNotFound: There is no such run, or it was deleted.
        """

    async def read_leases(self, root_plan_id: UUID) -> list[Lease]:
        """Return the leases of those who left something open in a run, or may have, by their ids.

        Raises:
            RecordNotFound: There is no such run, or it was deleted.
        """

    async def read_tool_stats(self, within: TimeRange, name: str | None = None) -> ToolStatsPage:
        """Return the statistics of each tool that was called, or of the tool `name` alone.

        Counts are exact as of `as_of`. Percentiles are durations that occurred, or within 1 % of
        them if roll-ups contribute.
        """

    async def read_tool_history(self, name: str, within: TimeRange) -> ToolHistory:
        """Return what is to be said of one tool over time, as exact as what is said of all.

        Raises:
            RecordNotFound: It was never called then.
        """

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the request and the answer of those of the runs that have ended, in their order.

        Runs that are deleted, unknown or open are left out, and so are runs without a request.
        Takes a constant number of queries.
        """

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return those of the runs that somebody wished to be cancelled or deleted."""

    async def check(self) -> None:
        """Return if the store can serve.

        Raises:
            StoreUnavailable: It does not answer.
            SchemaOutOfDate: It lacks migrations.
        """
