"""What lists return: pages and cursors, previews of runs, histograms and tool statistics."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import orjson
from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
    computed_field,
)
from pydantic.alias_generators import to_camel

from tracer.errors import BadCursor
from tracer.records.record_classes import Int64, Kind, Record, Run, Totals
from tracer.records.status import ABANDONED, Status
from tracer.text import first_line

Usd = Annotated[
    Decimal, PlainSerializer(float, return_type=float), WithJsonSchema({"type": "number"})
]
"""US dollars, as a JSON number."""


class Shown(BaseModel):
    """The base class of answers that the API sends as they are, with names in camelCase."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )


# --- Pages of a list, and the cursors by which clients request the next page.


@dataclass(frozen=True)
class Cursor:
    """The position after the last item of a page: the time and the id of this item."""

    moment: datetime
    record_id: UUID

    def encode(self) -> str:
        """Return the cursor as text that a URL can contain. Clients must not interpret it."""
        return _encoded([self.moment.isoformat(), str(self.record_id)])

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Parse the result of `encode`.

        Raises:
            BadCursor: `text` is not a cursor.
        """
        try:
            time_text, record_id = _decoded(text)
            moment = datetime.fromisoformat(time_text)
            if moment.tzinfo is None or not 1900 <= moment.year < 9000:
                raise ValueError(time_text)
            return cls(moment, UUID(record_id))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


@dataclass(frozen=True)
class SortedCursor:
    """The position after the last item of a page, in a list that is sorted by a value."""

    order: str
    """The sort order of the list. A cursor of a list with another order is rejected."""
    value: float | None
    """The value of the last item; None if it has none."""
    record_id: UUID

    def encode(self) -> str:
        """Return the cursor as text that a URL can contain. Clients must not interpret it."""
        return _encoded([self.order, self.value, str(self.record_id)])

    @classmethod
    def decode(cls, text: str, order: str) -> SortedCursor:
        """Parse the result of `encode`.

        Raises:
            BadCursor: `text` is not a cursor, or is the cursor of a list with another order.
        """
        try:
            of_order, value, record_id = _decoded(text)
            if of_order != order or not (value is None or type(value) in (int, float)):
                raise ValueError(text)
            return cls(order, value, UUID(record_id))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


def _encoded(parts: list[Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def _decoded(text: str) -> Any:
    packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    return orjson.loads(packed)


Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """One page of a list, and the cursor of the next page.

    To return a page, a store examines a limited number of records. If few of them match, the page
    may have fewer items than requested, or none. The list continues nevertheless if there is a
    `next_cursor`.
    """

    items: list[Item]
    next_cursor: str | None
    """None on the last page."""
    searched_back_to: datetime | None = None
    """The time of the last examined record, if the limit of examined records was reached."""
    indexed_up_to: datetime | None = None
    """If the page answers a search: the time up to which the search knows all changes. None while
    the index is built."""


class RunOrder(StrEnum):
    """The orders of a list of runs. A minus means that the greatest value comes first.

    Runs without the value come last in both directions. A running run has no duration. A run
    whose model calls have no known price has no cost. Runs with equal values are sorted by id.
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
        """Whether the greatest value comes first."""
        return self.value.startswith("-")


# --- Histogram of runs: how many runs match a filter, in total and per time interval.

MOST_BINS = 60
"""The maximum number of intervals of a histogram."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

_IN_UNITS = {
    1: (1, 5, 15, 30),
    _MINUTE: (1, 5, 15, 30),
    _HOUR: (1, 3, 6, 12),
    _DAY: (1, 7, 28, 91, 364, 3_640),
}
INTERVALS = tuple(number * unit for unit, numbers in _IN_UNITS.items() for number in numbers)
"""The possible lengths of an interval in seconds. A histogram has the shortest length of which
`MOST_BINS` intervals cover its time range."""


@dataclass(frozen=True)
class RunBin:
    """The number of runs that started in one interval."""

    start: datetime
    """The start of the interval. It is a multiple of the interval's length, counted from 1970."""
    runs: int
    failed: int


@dataclass(frozen=True)
class RunHistogram:
    """The number of matching runs, in total and by start time."""

    count: int
    """How many runs match."""
    interval_seconds: int
    bins: list[RunBin]
    """The intervals with runs, earliest first."""
    failed: int = 0
    abandoned: int = 0
    cost_usd: Decimal = Decimal(0)
    """The sum of the known costs in US dollars."""
    unpriced_calls: int = 0
    """The number of model calls whose cost is unknown."""
    p95_ms: float | None = None
    """The 95th percentile of the durations of ended runs in milliseconds."""
    counted_back_to: datetime | None = None
    """The start of the last examined run, if the limit of examined runs was reached. Earlier runs
    may match, too, but are not counted."""


class FacetValue(Shown):
    """A value, and how many runs have it."""

    value: str
    count: int


MOST_VALUES = 50
"""The most values of a facet."""


class RunFacets(Shown):
    """The values that matching runs have, the most frequent first; at most 50 of each facet."""

    runs: int = 0
    """The number of matching runs that were counted."""
    counted_back_to: datetime | None = None
    """If not all runs were examined, the start of the earliest examined run."""
    status: list[FacetValue] = []
    service: list[FacetValue] = []
    version: list[FacetValue] = []
    environment: list[FacetValue] = []
    agent: list[FacetValue] = []
    model: list[FacetValue] = []
    user: list[FacetValue] = []
    error_type: list[FacetValue] = []
    tag: list[FacetValue] = []
    metadata_key: list[FacetValue] = []
    """The keys of the runs' metadata."""


# --- Rows of the run list: a run with its question and answer, its failure, and its running call.

PREVIEW_CHARACTERS = 300
"""The maximum length of a question, an answer, an error or arguments in the list."""


class _Part(BaseModel, use_attribute_docstrings=True):
    pass


class RunFailure(_Part):
    """The record that made a run fail."""

    kind: Kind
    id: UUID
    name: str | None
    """The name of the agent, the model or the tool that failed."""
    reason: str | None
    """The reason of the record's status, as a code."""
    error_type: str | None
    """The error's class or code."""
    error_message: str | None
    """The first 300 characters of the error's message."""
    depth: int
    """The number of agents above the one that failed: 0 if the root agent itself failed."""


class OpenCall(_Part):
    """The tool call or model call that a run waits for."""

    kind: Kind
    """`toolCall` or `thinkAct`."""
    id: UUID
    name: str | None
    """The name of the tool or the model."""
    arguments: str | None
    """The first 300 characters of a tool call's arguments."""
    started_at: datetime | None


class OwnFigures(_Part):
    """The outcome and the totals of one run of a piece of work, without its other parts."""

    status: str
    """The status as shown."""
    reason: str | None
    answer: str | None
    started_at: datetime | None
    finished_at: datetime | None
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    """The sum of the known costs; null if it is zero and some costs are unknown."""
    unpriced_calls: int
    tool_calls: int
    failed_calls: int
    failures: int


class SnippetPart(_Part):
    """A piece of a text in which a search found words."""

    text: str
    """Plain text, without markup."""
    is_match: bool
    """Whether the search asks for this piece."""


class FoundPlace(_Part):
    """A record in which a search found words."""

    root_plan_id: UUID
    kind: Kind
    id: UUID
    agent_name: str | None
    """The agent that did the work."""
    name: str | None
    """The name of the tool or of the model."""
    position: int | None
    """The number of a model call within its step, from 0."""
    field: str
    """The field of the record that contains the words, such as `result`."""
    snippet: list[SnippetPart]
    """The part of the field's text around the words."""


class RunSearch(_Part):
    """The records of a run in which a search found words."""

    items: list[FoundPlace]
    """The places, by the start of their records. There is one for each record."""
    has_more: bool
    """Whether the search ended before all texts of the run were read."""
    is_cut: bool
    """Whether the list's search lacks words of the run, because it has very long texts."""


class RunFound(_Part):
    """Why a search lists a run."""

    run_id: UUID
    """The run whose texts contain the words: the listed run, or one that continues it."""
    places: list[FoundPlace]
    """The best two places; empty if the server found none in the time that a page has."""


class RunPreview(Run):
    """A run as a row of the run list.

    If other runs continue the run, the status, the reason, the answer, the times, the totals and
    the failures are those of the whole piece of work.
    """

    request: str | None = None
    """The first 300 characters of the question."""
    answer: str | None = None
    """The first 300 characters of the answer."""
    label: str | None = None
    """A name for the run: its title or question in one line, without markup; if it has none, its
    agent and what that did, such as `Coder · reviewer, Bash × 3`."""
    sub_agents: int = 0
    """The number of plans below the root plan."""
    failures: int = 0
    """The number of failures: failed records without a failed record below them. If one failure
    made several records fail, it is counted once. `failedCalls` counts all failed calls."""
    handled_failures: int = 0
    """The number of failures that did not make the run fail; 0 until the run has ended."""
    failure: RunFailure | None = None
    """The failure that made the run fail. If there are several, the one that ended last, because
    an agent that works on after a failure has handled it."""
    open_call: OpenCall | None = None
    """The call that the run waits for: of the running calls that wait for no other call or agent,
    the earliest. None if the run has ended."""
    seen_at: datetime | None = None
    """The time of the latest heartbeat of the run's recorders; None if the run has ended."""
    parts: int = 1
    """The number of runs that the piece of work consists of. It is 1 for a part other than the
    first."""
    own: OwnFigures | None = None
    """The outcome and the totals of the run alone; null if `parts` is 1."""
    found: RunFound | None = None
    """Why the search lists the run; null without a search."""


_TAG = re.compile(r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?>")
_LABEL_CHARACTERS = 200
_SHOWN_ACTIONS = 3


def label_of(text: str | None) -> str | None:
    """Return the first line of a text; None if it is blank. Markup of a machine is left out."""
    if text is not None and text.lstrip().startswith("<"):
        text = _TAG.sub(" ", text)
    return None if text is None else first_line(text, _LABEL_CHARACTERS)


def label_of_actions(agent: str | None, actions: Sequence[tuple[str, int]]) -> str | None:
    """Return a label for a run without a text.

    Args:
        agent: The agent or the service.
        actions: The names of sub-agents and tools in the order of their first calls, with the
            number of calls.
    """
    shown = [name if count == 1 else f"{name} × {count}" for name, count in actions]
    if len(shown) > _SHOWN_ACTIONS:
        shown[_SHOWN_ACTIONS:] = ["…"]
    if agent is not None and ("_" in agent or "-" in agent):
        agent = agent.replace("_", " ").replace("-", " ").title()
    return label_of(" · ".join(filter(None, (agent, ", ".join(shown)))))


class RunNotes(NamedTuple):
    """What the failed and the running records of a run say; see `RunPreview`."""

    failures: int = 0
    handled_failures: int = 0
    failure: RunFailure | None = None
    open_call: OpenCall | None = None
    seen_at: datetime | None = None


class OtherParts(Totals):
    """The runs that continue a run, in sum."""

    head_id: UUID
    """The first run of the piece of work."""
    ids: list[UUID]
    """All of them, latest start first."""
    open: list[UUID]
    """Those that have not ended."""
    last_id: UUID | None
    """The last-started one that is not inside; None if all are inside."""
    reason: str | None
    """The reason of its status."""
    answer: str | None
    """The answer of the last-started one that is not inside and has one."""
    finished_at: datetime | None
    """When the last one ended."""
    abandoned_at: datetime | None
    """When the last one was abandoned."""


def whole_preview(
    head: RunPreview, others: OtherParts, notes: Mapping[UUID, RunNotes]
) -> RunPreview:
    """Return the preview of a whole piece of work.

    Args:
        head: The preview of the first run, whose `whole_status` is set.
        others: The runs that continue it.
        notes: The notes of all these runs; none of a run without failed or running records.
    """
    run_ids = (head.root_plan_id, *reversed(others.ids))
    in_order = [notes[each] for each in run_ids if each in notes]
    last = notes.get(others.last_id or head.root_plan_id, RunNotes())
    is_abandoned = head.whole_status == ABANDONED
    status = Status.RUNNING if is_abandoned else Status(head.whole_status or head.status)
    reason = head.reason if others.last_id is None else others.reason
    ended_at = _latest(head.finished_at, others.finished_at)
    open_calls = (each.open_call for each in in_order)
    found: dict[str, Any] = {
        "status": status,
        "abandoned_at": _latest(head.abandoned_at, others.abandoned_at) if is_abandoned else None,
        "reason": reason if status.is_ending else None,
        "answer": others.answer or head.answer or None,
        "finished_at": ended_at if status.is_ending else None,
        "failure": last.failure if status is Status.FAILED else None,
        "open_call": None if status.is_ending else next(filter(None, open_calls), None),
        "seen_at": None if status.is_ending else _latest(*(each.seen_at for each in in_order)),
        "parts": len(run_ids),
        "own": OwnFigures(
            status=head.shown_status,
            cost_usd=head.known_cost,
            **{name: getattr(head, name) for name in OwnFigures.model_fields if name not in _MADE},
        ),
    }
    found |= {name: getattr(head, name) + getattr(others, name) for name in Totals.model_fields}
    found["failures"] = sum(each.failures for each in in_order)
    handled = sum(each.handled_failures for each in in_order)
    if status is Status.SUCCEEDED:
        handled = found["failures"]
    found["handled_failures"] = handled if status.is_ending else 0
    return head.model_copy(update=found)


_MADE = ("status", "cost_usd")


def _latest(*moments: datetime | None) -> datetime | None:
    return max(filter(None, moments), default=None)


def moment_of(record: Record) -> datetime:
    """Return when a record started; if it has no start, when it was recorded."""
    moment = record.started_at or record.recorded_at
    assert moment is not None
    return moment


class NotableRecord(NamedTuple):
    """A failed or running record of a run."""

    root_plan_id: UUID
    kind: Kind
    record_id: UUID
    has_failed: bool
    name: str | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    error_type: str | None
    error_message: str | None
    arguments: str | None
    tool_call: UUID | None
    think_act: UUID | None
    step: UUID | None
    plan: UUID | None
    """As `tool_call`, `think_act` and `step`: the id of the record of this kind above this one."""


def open_call(records: Iterable[NotableRecord]) -> NotableRecord | None:
    """Return the model call or tool call that a run waits for.

    This is the earliest running call that has no running record below it; None if there is none.
    """
    running = [each for each in records if not each.has_failed]
    occupied = {each.tool_call for each in running}
    waiting = [
        each
        for each in running
        if each.kind in (Kind.THINK_ACT, Kind.TOOL_CALL) and each.record_id not in occupied
    ]
    return min(waiting, key=_start, default=None)


def _start(record: NotableRecord) -> tuple[bool, float, str]:
    at = record.started_at
    return at is None, 0.0 if at is None else at.timestamp(), str(record.record_id)


# --- Conversations: the pieces of work of one session.


class Conversation(Totals):
    """The runs of one session as a conversation. Each piece of work is a turn."""

    session_id: str
    """The session's id."""
    question: str | None
    """The beginning of the first turn's request; if it has none, of its title."""
    answer: str | None
    """The beginning of the last turn's answer; null if it has none."""
    status: str
    """The status of the last turn, as shown."""
    statuses: list[str]
    """The statuses that turns have, as shown, sorted."""
    turns: Int64
    """The number of turns."""
    open_turns: Int64
    """The number of turns that are in progress."""
    failed_turns: Int64
    """The number of turns that failed."""
    first_at: datetime
    """When the first turn started, or was recorded if it has no start."""
    last_at: datetime
    """When a run of the conversation last started or ended."""
    subjects: list[str]
    """The subjects of the runs, sorted."""
    agents: list[str]
    """The agents that run the root plans, sorted."""


class UsedTool(_Part):
    """A tool that a turn called."""

    name: str | None
    calls: int
    failed: int
    """The number of calls that failed themselves: the agents that they opened did not fail."""


class Turn(Totals):
    """One turn of a conversation: a question, the work, and an answer."""

    root_plan_id: UUID
    """The first run of the turn's work."""
    title: str | None
    question: str | None
    """The request; at most 8,000 characters."""
    answer: str | None
    """The answer; at most 8,000 characters."""
    status: str
    """The status of the turn's work, as shown."""
    reason: str | None
    """The kind of ending, such as `timed_out`."""
    started_at: datetime | None
    finished_at: datetime | None
    """When the last run of the turn ended; null while one is open."""
    subject: str | None
    parts: int
    """The number of runs that the turn consists of."""
    agents: list[str]
    """The agents of the turn in the order of their plans."""
    tools: list[UsedTool]
    """The called tools, most calls first."""
    failures: int
    """The number of failures, handled ones included."""
    handled_failures: int
    """The number of failures that did not make the turn fail."""
    failure: RunFailure | None
    """The failure that made the turn fail."""
    open_call: OpenCall | None
    """The call that the turn waits for."""


TURN_CHARACTERS = 8_000
"""The maximum length of a question and of an answer of a turn."""


@dataclass(frozen=True)
class TurnsPage:
    """Some turns of a conversation, earliest first."""

    conversation: Conversation
    turns: list[Turn]
    next_cursor: str | None
    """None on the last page."""

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.conversation.session_id


class TurnPlace(_Part):
    """The place of a run in its conversation."""

    session_id: str | None
    """The session; null if the run has none. It is then the only turn."""
    turn: int
    """The number of the turn that the run belongs to, from 1."""
    turns: int
    """The number of turns of the conversation."""
    previous_id: UUID | None
    """The run of the previous turn."""
    next_id: UUID | None
    """The run of the next turn."""


@dataclass(frozen=True)
class ConversationCursor:
    """The position after the last item of a page of conversations, as of the first page."""

    moment: datetime
    """The last change of the order that the first page includes."""
    last_at: datetime
    """When the last item was active, as of that moment."""
    key: UUID

    def encode(self) -> str:
        """Return the cursor as text that a URL can contain. Clients must not interpret it."""
        return _encoded([self.moment.isoformat(), self.last_at.isoformat(), str(self.key)])

    @classmethod
    def decode(cls, text: str) -> ConversationCursor:
        """Parse the result of `encode`.

        Raises:
            BadCursor: `text` is not a cursor.
        """
        try:
            *times, key = _decoded(text)
            moment, last_at = (datetime.fromisoformat(each) for each in times)
            if any(at.tzinfo is None or not 1900 <= at.year < 9000 for at in (moment, last_at)):
                raise ValueError(text)
            return cls(moment, last_at, UUID(key))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


# --- Statistics of tool calls: counts and durations, in total and over time.

LISTED = 10
"""How many of the slowest calls, and of the latest failed calls, are listed."""

_MOST_BUCKETS = 60

_WIDTHS = [
    timedelta(seconds=1),
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(hours=3),
    timedelta(hours=6),
    timedelta(days=1),
    timedelta(days=7),
    timedelta(days=30),
]


@dataclass(frozen=True)
class TimeRange:
    """A time range of calls, by their start. None means unbounded.

    A call that never started counts at the time at which it was recorded.
    """

    since: datetime | None = None
    until: datetime | None = None
    """The end of the range, which is not part of it."""


@dataclass(frozen=True)
class CallFigures:
    """The counts and durations of a set of tool calls."""

    calls: int
    succeeded: int
    failed: int
    failed_below: int
    """How many of the failed calls opened an agent that failed. One failure deep inside makes all
    calls above it fail, so only the others count as failures of the tool itself."""
    cancelled: int
    abandoned: int
    """The number of open calls whose recorder's lease has expired."""
    running: int
    """The number of open calls whose recorder's lease has not expired."""
    p50_ms: float | None
    """The median duration of ended calls, with an error of at most 1 %; None if no call ended."""
    p95_ms: float | None
    p99_ms: float | None
    own_p50_ms: float | None
    """The median duration of ended calls, without the time of the sub-agents that they opened."""
    own_p95_ms: float | None
    own_p99_ms: float | None

    @property
    def ended(self) -> int:
        """The number of failed and succeeded calls."""
        return self.succeeded + self.failed

    @property
    def failed_here(self) -> int:
        """The number of failed calls whose agents, if they opened any, did not fail."""
        return self.failed - self.failed_below

    @property
    def failure_rate(self) -> float | None:
        """The share of calls that failed here among the ended ones; None if no call has ended."""
        return self.failed_here / self.ended if self.ended else None


@dataclass(frozen=True)
class ToolStats(CallFigures):
    """The statistics of one tool's calls."""

    name: str
    tool_type: str | None
    """The kind of tool. If the calls have several, the last one in alphabetical order."""
    latest_at: datetime
    """When the latest call started; if it did not start, when it was recorded."""
    sub_plans: int
    """How many sub-plans the calls opened."""


@dataclass(frozen=True)
class CallCounts:
    """How many calls of a tool started in one time bucket."""

    at: datetime
    """The start of the bucket."""
    calls: int
    failed: int


@dataclass(frozen=True)
class ToolStatsPage:
    """The statistics of all tools."""

    items: list[ToolStats]
    """The statistics of each tool, sorted by the tool's name."""
    bucket_seconds: int = 0
    """The length of a bucket; 0 without calls."""
    counts: dict[str, list[CallCounts]] = field(default_factory=dict)
    """For each tool name, the counts of its time buckets in order. Empty buckets are omitted."""
    as_of: datetime | None = None
    """Calls that started more than two hours before this time are counted with their state at this
    time. None if all calls were counted for this page."""


@dataclass(frozen=True)
class CallBucket(CallFigures):
    """The statistics of the calls in one time bucket."""

    at: datetime
    """The start of the bucket."""


@dataclass(frozen=True)
class ExampleCall:
    """A call that the statistics list as an example, such as one of the slowest calls."""

    tool_call_id: UUID
    root_plan_id: UUID
    status: str
    """The status as the API shows it, which may be `abandoned`."""
    started_at: datetime | None
    duration_ms: float | None
    reason: str | None
    error_type: str | None
    error_message: str | None
    """The first 2 kB of the error's message."""


@dataclass(frozen=True)
class ToolHistory:
    """The statistics of one tool's calls over time."""

    stats: ToolStats
    bucket_seconds: int
    """The length of a bucket."""
    buckets: list[CallBucket] = field(default_factory=list)
    """The time buckets in order. Empty buckets are omitted."""
    slowest: list[ExampleCall] = field(default_factory=list)
    """The calls with the longest durations."""
    latest_failed: list[ExampleCall] = field(default_factory=list)
    """The failed calls that ended last."""
    latest_abandoned: list[ExampleCall] = field(default_factory=list)
    """The abandoned calls that started last."""
    as_of: datetime | None = None
    """See `ToolStatsPage.as_of`."""


def bucket_width(first: datetime, last: datetime) -> timedelta:
    """Return a bucket length that divides the time between two times into at most 60 buckets."""
    least = (last - first) / _MOST_BUCKETS
    for width in _WIDTHS:
        if width >= least:
            return width
    return _WIDTHS[-1] * -(-least // _WIDTHS[-1])


# --- The overview of a project: runs, failures, tokens and cost of whole days in UTC.


@dataclass(frozen=True)
class OverviewFilter:
    """The criteria of an overview. None matches everything.

    An agent or a model selects the runs in which it took part, and its own model calls.
    """

    service: str | None = None
    environment: str | None = None
    agent: str | None = None
    model: str | None = None


class Spend(Shown):
    """The tokens and the cost of model calls."""

    calls: int = 0
    """The number of model calls."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Usd = Decimal(0)
    """The sum of the known costs in US dollars."""
    unpriced_calls: int = 0
    """The number of model calls whose cost is unknown."""


class SpendOf(Spend):
    """The tokens and the cost of the model calls of one model, agent, service, user or day."""

    name: str | None = None
    """The model, the agent, the service, the user, or the day in UTC; null if unknown."""


class RunCounts(Spend):
    """The runs of one day, and their model calls. Runs that continue each other count once."""

    day: date | None = None
    """The day in UTC on which the runs started; null for several days."""
    runs: int = 0
    failed: int = 0
    abandoned: int = 0
    running: int = 0
    """The number of runs that are open, but not abandoned."""


class RunFigures(RunCounts):
    """The runs of a period, and their model calls. Runs that continue each other count once."""

    p95_ms: float | None = None
    """The 95th percentile of the durations of ended runs in milliseconds, accurate to 1 %."""

    @computed_field  # type: ignore[prop-decorator]  # mypy does not support decorated properties
    @property
    def failure_rate(self) -> float | None:
        """Failed and abandoned runs, divided by all that are not running; null without any."""
        ended = self.runs - self.running
        return (self.failed + self.abandoned) / ended if ended else None


class FailureGroup(Shown):
    """Runs that failed at the same tool, model or agent with the same type of error."""

    kind: Kind | None
    """The kind of record where the failures began; null if it is unknown."""
    name: str | None
    """The name of the tool, the model or the agent. The filter `origin` of runs takes it."""
    error_type: str | None
    is_abandoned: bool
    """Whether the runs are abandoned. The record is then the one that they were waiting for."""
    runs: int = 0
    sample_run_id: UUID
    sample_label: str | None = None
    """The sample run's `label`."""


class Overview(Shown):
    """The figures of the runs that started in a period of whole days in UTC."""

    since: date | None
    """The first day; null without a beginning."""
    until: date | None
    """The day after the last one; null without an end."""
    total: RunFigures
    before: RunFigures | None
    """The figures of as many days before; null if the period has no beginning."""
    days: list[RunCounts]
    """The days with runs, in order."""
    failures: list[FailureGroup]
    """Where runs failed, the most frequent first; at most 50."""
    running: int
    """The number of runs that are open now, whenever they started; of the newest 10,000."""
    stuck: int
    """The number of these in which nothing was recorded for ten minutes."""
