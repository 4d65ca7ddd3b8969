"""The contract of every store: `TraceWriter` and `TraceReader`.

A store belongs to one project; it does not see records of other projects. Each implementation
(`tracer.storage`) fulfils the contract, and `tests/contract` checks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
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
from tracer.records.run_histogram import RunHistogram
from tracer.records.run_previews import RunPreview
from tracer.records.tool_stats import TimeRange, ToolHistory, ToolStatsPage
from tracer.text import preview

if TYPE_CHECKING:  # recording events needs no protobuf
    from tracer.otel.otlp.blocks import TraceSpans
    from tracer.otel.otlp.logs import LogRecord
    from tracer.otel.otlp.spans import Span


@dataclass(frozen=True)
class Refusal:
    """An event, span or log record that was rejected, and the reason."""

    index: int
    """Its position in the write, from 0."""
    code: str
    """A stable code, such as `run_deleted`."""
    detail: str
    """The reason as a sentence."""


@dataclass(frozen=True)
class WriteAnswer:
    """The result of writing events, spans or log records."""

    stored: int
    refused: list[Refusal] = field(default_factory=list)
    """The rejected items, in the order in which they were written."""

    @classmethod
    def without(cls, refused: Iterable[Refusal], written: Sequence[object]) -> WriteAnswer:
        """Return the answer to a write that stored all items except `refused`."""
        in_order = sorted(refused, key=lambda refusal: refusal.index)
        return cls(len(written) - len(in_order), in_order)


@dataclass(frozen=True)
class Erasure:
    """The result of a requested deletion."""

    runs: int = 0
    records: int = 0
    """Plans, steps, rounds and tool calls."""
    spans: int = 0
    """OpenTelemetry spans and log records."""
    left: int = 0
    """The remaining rows of these runs, in all tables: 0."""
    unprojected: list[UUID] = field(default_factory=list)
    """Runs of the project whose spans could not be projected, so that their subject is unknown."""

    def __add__(self, other: Erasure) -> Erasure:
        return Erasure(
            self.runs + other.runs,
            self.records + other.records,
            self.spans + other.spans,
            self.left + other.left,
            self.unprojected + other.unprojected,
        )


class TraceWriter(Protocol):
    """Accepts all events, spans and log records of a project."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`. When this returns, all events that were not rejected are durable.

        Writing is order-free and idempotent: any permutation, split or repetition of the same
        events results in the same records, except `revision` and `recorded_at`. A parent that has
        not arrived yet is stored as a placeholder. An invalid event is rejected without affecting
        the others.

        Raises:
            StoreUnavailable: The events may or may not be stored. Writing them again is safe.
        """

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store OpenTelemetry spans and log records. The next projection turns them into records.

        This method is as durable, order-free and idempotent as `write`. If a span has two versions,
        readers see the version that has ended; if both have ended, the one with the later end; if
        the ends are equal, the one with the greater bytes. Equal log records are stored once. The
        records of a run that arrives as spans are a projection of all its spans (`SpanProjection`).
        If a run arrived as events, its spans and log records are stored but not projected.

        Args:
            traces: The spans and log records, grouped by trace.

        Returns:
            Counts and positions of single items, in the order of `traces`. Spans of deleted runs
            are rejected (`run_deleted`), and spans of a run that has reached `MAX_RUN_BYTES`
            (`run_too_large`).

        Raises:
            StoreUnavailable: As above.
        """

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease, as its events do, and return the lease.

        When a lease expires, the recorder's open records are abandoned until its next heartbeat.

        Raises:
            StoreUnavailable: As above.
        """

    async def delete_run(self, root_plan_id: UUID) -> None:
        """Delete a run with everything below it. A tombstone rejects its late events.

        Raises:
            RecordNotFound: The run does not exist or is already deleted.
            StoreUnavailable: As above.
        """

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete every run of a subject, as `delete_run` does, and their session states.

        Pending runs are projected first. The subject is unknown for runs that cannot be projected,
        and for runs whose root plan has not arrived. The former are listed in the result. Repeat
        the call later to delete both.

        Raises:
            StoreUnavailable: As above. Some runs may be deleted; repeat the call to continue.
        """

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run, and return the run.

        The process that executes the run cancels it. Repeated requests have no effect.

        Raises:
            RecordNotFound: The run does not exist.
            RunNotActive: The run has ended.
            StoreUnavailable: As above.
        """


MAX_RUN_BYTES = 2 * 10**9
"""The largest size of a run's spans, uncompressed."""


@dataclass(frozen=True)
class Behind:
    """The spans of a run that its records do not include yet."""

    spans: int
    since: datetime
    """When the first of them arrived."""
    error: str | None = None
    """Why they cannot be projected; None: they are pending."""


class SpanProjection(Protocol):
    """The part of a store that turns stored spans into records."""

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
            record_id: Its id. If there is no such record, nothing is pending.
            seconds: How long to wait.
            any_size: Whether to wait even if more than 5,000 spans are pending.

        Returns:
            The pending spans, if the records are behind; None if they include every span that
            was accepted before the call.
        """


@dataclass(frozen=True)
class RunFilter:
    """The criteria of a list of runs. None matches everything."""

    status: str | None = None
    """The status as it is shown: one of `Status`, or `abandoned`."""
    agent: str | None = None
    """The name of an agent of the run."""
    tool: str | None = None
    """The name of a called tool."""
    session: str | None = None
    subject: str | None = None
    tag: str | None = None
    service: str | None = None
    service_version: str | None = None
    environment: str | None = None
    """Exact values: the session id, the subject, one of the tags, the service's name and version,
    and the deployment environment."""
    q: str | None = None
    """Text within the question, the answer, titles, tool and agent names or errors. Case is
    ignored."""
    since: datetime | None = None
    """Started (or, if without a start, recorded) at this time or later."""
    until: datetime | None = None
    """Started (or, if without a start, recorded) before this time."""
    other_traces: bool = False
    """Whether to include traces without any agent, model or tool call."""


class RunOrder(StrEnum):
    """The orders of a list of runs. A minus puts the greatest value first.

    Runs without the value come last in both directions: open runs have no duration, and runs that
    used only tokens of unknown price have no known cost. Runs with equal values are ordered by id.
    """

    LATEST = "-start"
    EARLIEST = "start"
    LONGEST = "-duration"
    SHORTEST = "duration"
    MOST_TOKENS = "-tokens"
    FEWEST_TOKENS = "tokens"
    MOST_EXPENSIVE = "-cost"
    CHEAPEST = "cost"
    MOST_TOOL_CALLS = "-toolCalls"
    FEWEST_TOOL_CALLS = "toolCalls"

    @property
    def is_descending(self) -> bool:
        """Whether the greatest value is first."""
        return self.value.startswith("-")


@dataclass(frozen=True)
class ToolCallFilter:
    """The criteria of a list of tool calls. None matches everything."""

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
    """A tool call with its ancestors and the sub-plans that it opened."""

    call: ActToolInfo
    lineage: list[AnyRecord]
    """From the root plan down to the call itself, as far as known."""
    sub_plans: list[PlanExecutionRecord]
    """In order of position, then id."""


@dataclass(frozen=True)
class RunChanges:
    """The changes of a run since an earlier revision."""

    revision: int
    """The run's revision after these changes."""
    changed: Sequence[Row] = field(default_factory=list)
    """The new or changed rows, with payloads as previews."""
    removed: list[tuple[Kind, UUID]] = field(default_factory=list)
    """The records that no longer exist."""
    is_reset: bool = False
    """Whether the changes are unavailable, because the earlier revision is unknown or too old. They
    are empty then, and the tree must be read again."""


class ToolCallPreview(ActToolInfo):
    """A tool call in a list, with the first 2 kB and the size of each long string."""

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
    """The user's request and the agents' answer of a run, in stored form."""

    root_plan_id: UUID
    request: str
    answer: str | None
    """None unless the run succeeded."""


@dataclass(frozen=True)
class WholeRun:
    """Everything that a store has of a run."""

    run: Run
    source: str
    """The origin of its records: `events`, or `spans` of which they are a projection."""
    is_agent_work: bool
    """Whether it contains an agent, a model call or a tool call."""
    records: Mapping[Kind, Sequence[AnyRecord]]
    """All records below the run, complete, by kind, ordered by id."""
    spans: Sequence[Span]
    """The spans stored with it, ordered by start time and span id."""
    logs: Sequence[LogRecord] = ()
    """The log records stored with it, ordered by time."""


class TraceReader(Protocol):
    """Reads a project's records. Each method sees one snapshot of the database.

    Each method raises `StoreUnavailable` when the store does not answer.
    """

    async def list_runs(
        self,
        wanted: RunFilter,
        limit: int,
        cursor: str | None,
        order: RunOrder = RunOrder.LATEST,
    ) -> Page[RunPreview]:
        """Return a page of runs.

        A run without a start counts from its first `recorded_at`. Runs of the same time are ordered
        by id. Deleted runs are omitted. Runs that are recorded while a client requests pages do not
        affect the following pages of the latest runs.

        Raises:
            BadCursor: `cursor` does not come from a list of this order.
        """

    async def count_runs(self, wanted: RunFilter) -> RunHistogram:
        """Count the matching runs, and how many of each interval failed."""

    async def read_run(self, root_plan_id: UUID) -> RunPreview:
        """Return a run with its totals.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_plan(self, plan_id: UUID) -> PlanWithOpener:
        """Return a complete plan. Raises `RecordNotFound`."""

    async def read_tree(self, plan_id: UUID, payloads: Payloads) -> TreeRows:
        """Return the rows of a plan and of everything below it, for `lineage.build_tree`.

        For a root plan, all rows of its run, including unplaced ones. Takes a constant number of
        queries, at most six, whatever the run's size.

        Raises:
            RecordNotFound: The plan does not exist.
        """

    async def read_revision(self, kind: Kind, record_id: UUID) -> Revision:
        """Return the revision of the run that a record belongs to, with one cheap query.

        If several runs have the record, the methods that read the record choose the same run.

        Raises:
            RecordNotFound: The record does not exist.
        """

    async def read_revisions(self, root_plan_ids: Collection[UUID]) -> dict[UUID, int]:
        """Return the revisions of the runs that exist, by id."""

    async def read_changes(self, root_plan_id: UUID, after: int, limit: int) -> RunChanges:
        """Return what changed in a run since its revision was `after`.

        A client that applies the result to the rows of revision `after` has the rows of the new
        revision, whatever was written in between.

        Args:
            root_plan_id: The run.
            after: A revision of the run, or 0 for the time before it existed.
            limit: The largest number of changes. If there are more, the result is a reset.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_messages(self, root_plan_id: UUID) -> dict[UUID, str]:
        """Return the messages that the model received in each round of a run, by `think_act_id`."""

    async def read_message_bytes(self, root_plan_id: UUID) -> int:
        """Return the total size in bytes of the messages that `read_messages` returns."""

    async def read_think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return a complete round, with messages and offered tools. Raises `RecordNotFound`."""

    async def read_tool_call(self, tool_call_id: UUID) -> ToolCallInPlace:
        """Return a complete call, with its lineage and sub-plans. Raises `RecordNotFound`."""

    async def list_tool_calls(
        self, wanted: ToolCallFilter, limit: int, cursor: str | None
    ) -> Page[ToolCallPreview]:
        """Return a page of tool calls across runs, newest first (by start, then id).

        Long strings are cut, so that a page is small whatever the calls returned.

        Raises:
            BadCursor: `cursor` does not come from a list.
        """

    async def read_whole_run(self, root_plan_id: UUID) -> WholeRun:
        """Return everything of a run. Takes a constant number of queries.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def find_runs_like(self, record_id: UUID) -> list[UUID]:
        """Return the runs of spans that may contain the id of a record.

        Ids that are derived from spans begin with six bytes of the trace id.

        Returns:
            At most ten runs, ordered by id; usually one or none.
        """

    async def read_spans(
        self, root_plan_id: UUID, span_ids: Collection[bytes] | None = None
    ) -> list[Span]:
        """Return the OpenTelemetry spans stored with a run, ordered by start time and span id.

        Either the run arrived as these spans, or it arrived as events, and other programs sent the
        spans.

        Args:
            root_plan_id: The run.
            span_ids: The requested spans; None: all.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_logs(self, root_plan_id: UUID) -> list[LogRecord]:
        """Return the OpenTelemetry log records of a run, by time.

        The result contains the log records stored with the run, and those of its sessions that have
        no trace id.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_leases(self, root_plan_id: UUID) -> list[Lease]:
        """Return the leases of recorders that have open records in a run, or may have, by id.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_tool_stats(self, period: TimeRange, name: str | None = None) -> ToolStatsPage:
        """Return the statistics of each tool that was called, or of the tool `name` alone.

        Counts are exact as of `as_of`. A percentile is the duration of a call. If roll-ups
        contribute, it is within 1 % of such a duration.
        """

    async def read_tool_history(self, name: str, period: TimeRange) -> ToolHistory:
        """Return the figures of one tool over time, with the precision of `read_tool_stats`.

        Raises:
            RecordNotFound: The tool was not called in this time.
        """

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the request and the answer of the runs that have ended, in the given order.

        Deleted, unknown and open runs, and runs without a request, are omitted. Takes a constant
        number of queries.
        """

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return which of the given runs have a request to be cancelled or deleted."""

    async def check(self) -> None:
        """Check that the store is available.

        Raises:
            StoreUnavailable: The store does not answer.
            SchemaOutOfDate: The database lacks migrations.
        """
