"""Statistics of tool calls: counts and durations, in total and over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

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
    def failure_rate(self) -> float | None:
        """The share of failed calls among failed and succeeded calls; None if there are none."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


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
