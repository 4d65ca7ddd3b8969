"""The interface of every store: `TraceWriter` and `TraceReader`.

A store belongs to one project and never returns records of other projects. The implementations are
in `tracer.storage`. `tests/contract` checks that Postgres and the HTTP writer fulfil it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from pydantic import field_validator

from tracer.lineage import PAYLOAD_FIELDS, Payloads, Revision, Row, TreeRows
from tracer.records import Kind, Lease, Run
from tracer.records.events import Event
from tracer.records.pages import (
    Conversation,
    Overview,
    OverviewFilter,
    Page,
    RunFacets,
    RunHistogram,
    RunOrder,
    RunPreview,
    RunSearch,
    SpendOf,
    TimeRange,
    ToolHistory,
    ToolStatsPage,
    TurnPlace,
    TurnsPage,
)
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    PlanExecutionRecord,
    ThinkActRecord,
)
from tracer.records.span_records import SpanRecords
from tracer.records.spans import Contents, TraceSpans
from tracer.text import preview


@dataclass(frozen=True)
class Refusal:
    """A rejected event, span or log record, and the reason."""

    index: int
    """The position of the rejected item in the write, from 0."""
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
    """How much data a deletion of runs removed."""

    runs: int = 0
    records: int = 0
    """Plans, steps, rounds and tool calls."""
    spans: int = 0
    """OpenTelemetry spans and log records."""
    left: int = 0
    """Rows of these runs that remain in any table. This is 0, unless the deletion is incomplete."""
    unprojected: list[UUID] = field(default_factory=list)
    """Runs of the project whose spans could not be projected, or whose links are unknown. They may
    belong to the subject."""
    parts_of_others: list[UUID] = field(default_factory=list)
    """Runs of other subjects that continue deleted runs, or were continued by them. They remain."""

    def __add__(self, other: Erasure) -> Erasure:
        return Erasure(
            self.runs + other.runs,
            self.records + other.records,
            self.spans + other.spans,
            self.left + other.left,
            self.unprojected + other.unprojected,
            self.parts_of_others + other.parts_of_others,
        )


class TraceWriter(Protocol):
    """Stores the events, spans and log records of a project."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store events. When this method returns, all accepted events are durable.

        The order of events is irrelevant, and writing is idempotent. Any permutation, split or
        repetition of the same events produces the same records, except for `revision` and
        `recorded_at`. A parent that has not arrived is stored as a placeholder. An invalid event is
        rejected without affecting other events.

        Raises:
            StoreUnavailable: The events may or may not be stored. Writing them again is safe.
        """

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store OpenTelemetry spans and log records. A later projection converts them to records.

        This method is as durable and idempotent as `write`, and the order is irrelevant. If a span
        was sent in several versions, readers get the version with the latest end. If the ends are
        equal, they get the version with the greater bytes. Duplicate log records are stored once.

        The spans and log records of a run that arrived as events are stored, but not projected.

        Args:
            traces: The spans and log records, grouped by trace.

        Returns:
            The number of stored items, and the rejected items by their index in `traces`. Spans of
            a deleted run are rejected with `run_deleted`. Items beyond `MAX_RUN_SPANS` or
            `MAX_RUN_BYTES` of a run are rejected with `run_too_large`.

        Raises:
            StoreUnavailable: The items may or may not be stored. Writing them again is safe.
        """

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew the lease of a recorder, and return the lease.

        Each event of the recorder renews the lease, too. After the lease expires, the recorder's
        open records are shown as `abandoned` until its next heartbeat.

        Raises:
            StoreUnavailable: The store did not answer.
        """

    async def delete_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> None:
        """Delete a run with everything below it.

        If the run is the first one of a piece of work and `all_parts` is set, the runs that
        continue it are deleted, too. Tombstones remain, so that events that arrive later are
        rejected.

        Raises:
            RecordNotFound: The run does not exist or is already deleted.
            StoreUnavailable: The store did not answer. It may have deleted the run.
        """

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete all runs of a subject and the states of their sessions.

        Pending spans are projected first, and runs are linked to those that they continue. Runs
        without a subject that continue a run of the subject are deleted, too. Other runs are not
        deleted if their subject is unknown. This is the case if the spans cannot be projected, or
        if the root plan has not arrived. The result lists the runs whose spans cannot be projected.
        Repeat the call later to delete such runs.

        Raises:
            StoreUnavailable: The store did not answer. Some runs may be deleted. Repeat the call to
                continue.
        """

    async def delete_session(self, session_id: str) -> Erasure:
        """Delete all runs of a session, the runs that continue them, and the session's states.

        Pending spans are projected first, as in `delete_subject`.

        Raises:
            StoreUnavailable: The store did not answer. Some runs may be deleted. Repeat the call to
                continue.
        """

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run and the open runs that continue it. Return the run.

        The process that executes the run then cancels it. A repeated request has no effect.

        Raises:
            RecordNotFound: The run does not exist.
            RunNotActive: The run has ended.
            StoreUnavailable: The store did not answer. It may have recorded the request.
        """


MAX_RUN_SPANS = 400_000
"""The largest number of spans and log records that a run receives."""

MAX_RUN_BYTES = 2 * 10**9
"""The largest size of a run's spans, uncompressed."""


@dataclass(frozen=True)
class Behind:
    """The spans of a run that its records do not include yet."""

    spans: int
    since: datetime
    """When the first of these spans arrived."""
    error: str | None = None
    """Why these spans cannot be projected. None: they are pending."""


class SpanProjection(Protocol):
    """The part of a store that waits until stored spans are converted to records."""

    async def catch_up(self, kind: Kind, record_id: UUID, *, seconds: float = 2.0) -> Behind | None:
        """Wait until the pending spans of a run are projected, before one of its records is read.

        Args:
            kind: The kind of the record, or `Kind.RUN`.
            record_id: The id of the record. If there is no such record, nothing is pending.
            seconds: How long to wait at most.

        Returns:
            The spans that are still pending; None if the records include every span that was
            accepted before the call.
        """


@dataclass(frozen=True)
class RunFilter:
    """The criteria of a list of runs. A criterion of None matches every run."""

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
    """The exact deployment environment. The five criteria above are exact values, too: the session
    id, the subject, one tag, and the service's name and version."""
    origin: str | None = None
    """The name of the tool, the model or the agent where the run failed, or that an abandoned run
    was waiting for."""
    error_type: str | None = None
    """The type of the error there."""
    model: str | None = None
    """A model that was used. Up to a minute passes until these three criteria find a new run."""
    metadata_key: str | None = None
    """A key of the run's metadata, at its top level."""
    min_cost: float | None = None
    """The least known cost in US dollars, that of the whole piece of work."""
    q: str | None = None
    """The words of a search: `words`, `"a phrase"`, `-without`; see `tracer.search.Query`."""
    since: datetime | None = None
    """The run started at this time or later. If it has no start, it was recorded at this time or
    later."""
    until: datetime | None = None
    """The run started before this time. If it has no start, it was recorded before this time."""
    other_traces: bool = False
    """Whether to include traces without any agent, model or tool call."""
    all_parts: bool = False
    """Whether each run is an item. Otherwise a run that continues another one is no item of its
    own, and the item of the first run describes the whole piece of work. The agent, the tool, the
    tag, the service and the text may then be those of any of its runs."""


@dataclass(frozen=True)
class ConversationFilter:
    """The criteria of a list of conversations. A criterion of None matches every conversation."""

    status: str | None = None
    """A status that a turn has: one of `Status`, or `abandoned`."""
    agent: str | None = None
    """The agent of a turn."""
    subject: str | None = None
    """The subject of a run."""
    q: str | None = None
    """The words of a search that a turn contains; see `RunFilter.q`."""
    since: datetime | None = None
    """The last activity was at this time or later."""
    until: datetime | None = None
    """The last activity was before this time."""


@dataclass(frozen=True)
class ToolCallFilter:
    """The criteria of a list of tool calls. A criterion of None matches every call."""

    name: str | None = None
    status: str | None = None
    root_plan_id: UUID | None = None
    provider_call_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class RecordMatch:
    """A record that a reference may mean."""

    kind: Kind
    id: UUID
    root_plan_id: UUID
    name: str | None = None
    """The plan's title or agent, the step's agent, the round's model, or the tool's name."""
    run: RunPreview | None = None
    """The record's run, if it was asked for."""


AnyRecord = PlanExecutionRecord | AgentExecutionRecord | ThinkActRecord | ActToolInfo


@dataclass(frozen=True)
class PlanWithOpener:
    """A plan and the tool call that started it."""

    plan: PlanExecutionRecord
    opener: ActToolInfo | None


@dataclass(frozen=True)
class ToolCallWithLineage:
    """A tool call with its ancestors and the sub-plans that it started."""

    call: ActToolInfo
    lineage: list[AnyRecord]
    """The known ancestors of the call from the root plan down, and then the call itself."""
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
    """Whether the changes are unavailable, because the earlier revision is unknown or too old. If
    so, `changed` and `removed` are empty, and the caller must read the tree again."""


class ToolCallPreview(ActToolInfo):
    """A tool call in a list. Long texts are cut to 2 kB, and their sizes are added."""

    arguments_bytes: int | None = None
    arguments_truncated: bool = False
    effective_arguments_bytes: int | None = None
    effective_arguments_truncated: bool = False
    result_bytes: int | None = None
    result_truncated: bool = False
    state_changes_bytes: int | None = None
    state_changes_truncated: bool = False

    @field_validator(*PAYLOAD_FIELDS[Kind.TOOL_CALL], "error_message", "error_stack")
    @classmethod
    def _cut(cls, text: str | None) -> str | None:
        return None if text is None else preview(text)


@dataclass(frozen=True)
class Exchange:
    """The user's request in a run and the answer, in stored form (`tracer.text`)."""

    root_plan_id: UUID
    request: str
    answer: str | None
    """None unless the run succeeded."""


@dataclass(frozen=True)
class WholeRun:
    """The records of a run, from which exports are made."""

    run: Run
    source: str
    """How the run arrived: as `events`, or as `spans` from which the records were projected."""
    records: Mapping[Kind, Sequence[AnyRecord]]
    """All records below the run, complete, by kind, ordered by id."""
    later_parts: Sequence[UUID] = ()
    """The runs that continue the run, if it is the first one of a piece of work."""


@dataclass(frozen=True)
class SpanPart:
    """Some of a run's stored spans and log records, few enough to be read at once."""

    run_id: UUID
    """The run that stores them: the run itself, or that of one of its sessions."""
    keys: tuple[bytes, ...]
    """The keys of their blocks."""


class CancelRequestReader(Protocol):
    """The part of a `TraceReader` that reads requests to cancel runs."""

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return the given runs whose cancellation or deletion was requested."""


EVERYTHING = OverviewFilter()
"""The filter that matches all runs and model calls."""


class TraceReader(CancelRequestReader, Protocol):
    """Reads the records of a project. Each method reads one snapshot of the database.

    Each method raises `StoreUnavailable` if the store does not answer.
    """

    async def list_runs(
        self,
        wanted: RunFilter,
        limit: int,
        cursor: str | None,
        order: RunOrder = RunOrder.LATEST,
    ) -> Page[RunPreview]:
        """Return a page of runs. Deleted runs are omitted.

        A run that has not started is sorted by the time at which it was first recorded. Runs with
        equal times are sorted by id. In the order `LATEST`, runs that are recorded while a client
        reads page after page do not change the following pages.

        Raises:
            BadCursor: `cursor` does not come from a list of this order.
            BadRequest: `wanted.q` has no words.
            SearchOff: There is no search index.
        """

    async def count_runs(self, wanted: RunFilter) -> RunHistogram:
        """Count the matching runs in total, and the matching and failed runs per time interval."""

    async def read_facets(self, wanted: RunFilter) -> RunFacets:
        """Count the values that the newest 10,000 matching runs have."""

    async def search_run(self, root_plan_id: UUID, q: str) -> RunSearch:
        """Return the records of a run, and of the runs that continue it, with words of a search.

        Raises:
            BadRequest: `q` has no words.
            RecordNotFound: The run does not exist or was deleted.
        """

    async def list_conversations(
        self, wanted: ConversationFilter, limit: int, cursor: str | None
    ) -> Page[Conversation]:
        """Return a page of conversations, latest activity first.

        The following pages have the order of the first one. A conversation that changes meanwhile
        is neither repeated nor left out. A list omits runs of which links are not derived yet.

        Raises:
            BadCursor: `cursor` does not come from a list of conversations.
            BadRequest: `wanted.q` has no words.
            SearchOff: There is no search index.
        """

    async def read_conversation(self, session_id: str, limit: int, cursor: str | None) -> TurnsPage:
        """Return a conversation with a page of its turns, earliest first.

        Raises:
            BadCursor: `cursor` does not come from a page of turns.
            RecordNotFound: No run of agents begins a piece of work in this session.
        """

    async def find_turn(self, root_plan_id: UUID) -> TurnPlace:
        """Return the place of a run, or of the run that it continues, in its conversation.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_run(self, root_plan_id: UUID) -> RunPreview:
        """Return a run with its totals.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_plan(self, plan_id: UUID) -> PlanWithOpener:
        """Return a complete plan.

        Raises:
            RecordNotFound: The plan does not exist.
        """

    async def read_tree(
        self, plan_id: UUID, payloads: Payloads, *, all_parts: bool = True
    ) -> TreeRows:
        """Return the rows of a plan and of everything below it, the input of `lineage.build_tree`.

        For a root plan, the result contains all rows of the run, including those without a known
        parent. If the run is the first one of a piece of work and `all_parts` is set, the rows of
        the runs that continue it follow, below the calls that they continue. Large runs need no
        more queries than small runs: at most six, and one more if there are such runs. If a run has
        no record of its root plan, because its spans were not projected yet, the result is one
        unknown plan.

        Raises:
            RecordNotFound: The plan does not exist.
        """

    async def read_revision(self, kind: Kind, record_id: UUID) -> Revision:
        """Return the revision of the run that contains a record. This takes one cheap query.

        If several runs contain the record, all methods that read the record choose the same run.

        Raises:
            RecordNotFound: The record does not exist.
        """

    async def read_revisions(self, root_plan_ids: Collection[UUID]) -> dict[UUID, int]:
        """Return the revision of each given run, by run id. Runs that do not exist are omitted."""

    async def read_changes(self, root_plan_id: UUID, after: int, limit: int) -> RunChanges:
        """Return the changes of a run after revision `after`.

        A client that has all rows of revision `after` and applies the changes has all rows of the
        new revision, even if the run was written to in between.

        Args:
            root_plan_id: The run.
            after: A revision of the run; 0 for the time before the run existed.
            limit: The largest number of changes. If there are more, `is_reset` is set in the
                result.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_messages(self, root_plan_id: UUID) -> dict[UUID, str]:
        """Return the input messages of each model call of a run, by `think_act_id`."""

    async def read_message_bytes(self, root_plan_id: UUID) -> int:
        """Return the total size in bytes of the messages that `read_messages` returns."""

    async def read_think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return a complete model call, with its messages and offered tools.

        Raises:
            RecordNotFound: The model call does not exist.
        """

    async def read_tool_call(self, tool_call_id: UUID) -> ToolCallWithLineage:
        """Return a complete tool call, with its ancestors and sub-plans.

        Raises:
            RecordNotFound: The tool call does not exist.
        """

    async def list_tool_calls(
        self, wanted: ToolCallFilter, limit: int, cursor: str | None
    ) -> Page[ToolCallPreview]:
        """Return a page of tool calls of all runs, newest first (by start, then id).

        Long texts are cut to 2 kB, so that a page stays small.

        Raises:
            BadCursor: `cursor` does not come from this list.
        """

    async def read_whole_run(self, root_plan_id: UUID, *, with_projected: bool = True) -> WholeRun:
        """Return the records of a run. The number of queries does not depend on the run's size.

        Args:
            root_plan_id: The run.
            with_projected: Whether to return the records of a run that arrived as spans, too.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def find_records(self, reference: str, *, with_runs: bool = False) -> list[RecordMatch]:
        """Return the records that a text may mean, at most twenty: none, one or several.

        Args:
            reference: An id with or without hyphens, such as a trace id; `TRACE:SPAN`, the
                hexadecimal ids of a trace and of one of its spans; a handle, `r` and the last ten
                hexadecimal digits of an id, or any ending of six to ten digits, with or without
                the `r`; or the id that the model provider gave a tool call. Of several calls with
                such an id, the newest come first.
            with_runs: Whether to add the records' runs.
        """

    async def read_record(self, kind: Kind, record_id: UUID) -> AnyRecord:
        """Return a complete record.

        Raises:
            RecordNotFound: The record does not exist.
        """

    async def find_runs_like(self, record_id: UUID) -> list[UUID]:
        """Return the runs that may contain a record, judging by the record's id.

        This works for runs that arrived as spans: the ids of their records begin with six bytes of
        the trace id.

        Returns:
            At most ten run ids, sorted; usually one or none.
        """

    async def list_span_parts(
        self, root_plan_id: UUID, *, with_sessions: bool = False
    ) -> list[SpanPart]:
        """Return the parts of a run's stored spans and log records, in the order of storage.

        If the run arrived as events, these are spans that other programs sent for the same trace.

        Args:
            root_plan_id: The run.
            with_sessions: Whether to add the parts of the runs that store log records without a
                trace id of the run's sessions.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_span_part(
        self, part: SpanPart, span_ids: Collection[bytes] | None = None
    ) -> Contents | None:
        """Return the spans and log records of a part.

        None if its blocks were replaced since they were listed, or the run was deleted.

        Args:
            part: The part.
            span_ids: The ids of the wanted spans; None for all spans.
        """

    async def read_span_records(
        self, root_plan_id: UUID, record_id: UUID | None = None
    ) -> tuple[SpanRecords, set[bytes] | None]:
        """Return the record of each span of a run, and the ids of the spans of one record.

        An agent's own span belongs to two records: the agent's step and its plan. If the run
        arrived as events, a span belongs to the nearest tool call above it.

        Args:
            root_plan_id: The run.
            record_id: The record; None: all spans are wanted, so no ids are returned.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_leases(self, root_plan_id: UUID) -> list[Lease]:
        """Return the leases of all recorders that may have open records in a run, sorted by id.

        Raises:
            RecordNotFound: The run does not exist or was deleted.
        """

    async def read_overview(self, period: TimeRange, wanted: OverviewFilter) -> Overview:
        """Return the figures of the runs that started in a period, and of the period before it.

        The period is extended to whole days in UTC.
        """

    async def read_spend(
        self, period: TimeRange, by: str, wanted: OverviewFilter = EVERYTHING
    ) -> list[SpendOf]:
        """Return what model calls of runs of a period cost, the most expensive first.

        Args:
            period: When the runs started. It is extended to whole days in UTC.
            by: How the calls are divided: `model`, `agent`, `service`, `user` or `day`.
            wanted: Which calls.

        Returns:
            At most 100 items.

        Raises:
            BadRequest: `by` is `user`, and the period is longer than 30 days.
        """

    async def read_tool_stats(self, period: TimeRange, name: str | None = None) -> ToolStatsPage:
        """Return the statistics of all called tools, or only of the tool `name`.

        Counts are exact as of the time `as_of` in the result. Percentiles are durations of actual
        calls, if they are computed from all calls. If hourly roll-ups contribute, percentiles are
        accurate to 1 %.
        """

    async def read_tool_history(self, name: str, period: TimeRange) -> ToolHistory:
        """Return the statistics of one tool over time, as accurate as `read_tool_stats`.

        Raises:
            RecordNotFound: The tool was not called in this time range.
        """

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the requests and answers of runs, in the order of the given ids.

        Runs that are deleted, unknown or still running, and runs without a request, are omitted.
        The number of queries does not depend on the number of runs.
        """

    async def check(self) -> None:
        """Check that the store is available.

        Raises:
            StoreUnavailable: The store does not answer.
            SchemaOutOfDate: The database lacks migrations.
        """
