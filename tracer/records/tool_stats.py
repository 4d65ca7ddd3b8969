"""Statistics of tool calls: counts and durations, in total and over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

LISTED = 10
"""How many of the slowest calls, and of the latest failures, are listed."""

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
    """Exclusive."""


@dataclass(frozen=True)
class CallFigures:
    """The counts and durations of a set of tool calls."""

    calls: int
    succeeded: int
    failures: int
    cancelled: int
    abandoned: int
    """Open calls whose recorder's lease is expired."""
    running: int
    """Other open calls."""
    p50_ms: float | None
    """The median duration of ended calls, within 1.1 %; None if none ended."""
    p95_ms: float | None
    p99_ms: float | None
    own_p50_ms: float | None
    """The median of the ended calls' own time: without the sub-agents that they opened."""
    own_p95_ms: float | None
    own_p99_ms: float | None

    @property
    def failure_rate(self) -> float | None:
        """The share of failed calls among failed and succeeded calls; None if there are none."""
        ended = self.succeeded + self.failures
        return self.failures / ended if ended else None


@dataclass(frozen=True)
class ToolStats(CallFigures):
    """The statistics of one tool's calls."""

    name: str
    tool_type: str | None
    """The kind of tool; if there are several, the last one by name."""
    latest_at: datetime
    """When the latest call started (or, if it did not, was recorded)."""
    sub_plans: int
    """How many sub-plans the calls opened."""


@dataclass(frozen=True)
class CallCounts:
    """How many calls of a tool started in one time bucket."""

    at: datetime
    """The start of the bucket."""
    calls: int
    failures: int


@dataclass(frozen=True)
class ToolStatsPage:
    """The statistics of all tools."""

    items: list[ToolStats]
    """By name."""
    bucket_seconds: int = 0
    """The length of a bucket; 0 without calls."""
    counts: dict[str, list[CallCounts]] = field(default_factory=dict)
    """The counts of each tool over time, by name; in order, without empty buckets."""
    as_of: datetime | None = None
    """Calls that started more than two hours earlier are counted as of this time. None: all calls
    are current."""


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
    """The status as it is shown."""
    started_at: datetime | None
    duration_ms: float | None
    error_type: str | None
    error_message: str | None
    """The first 2 kB."""


@dataclass(frozen=True)
class ToolHistory:
    """The statistics of one tool's calls over time."""

    stats: ToolStats
    bucket_seconds: int
    """The length of a bucket."""
    buckets: list[CallBucket] = field(default_factory=list)
    """In order of time, without empty ones."""
    slowest: list[ExampleCall] = field(default_factory=list)
    """The calls with the longest durations."""
    latest_failures: list[ExampleCall] = field(default_factory=list)
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
