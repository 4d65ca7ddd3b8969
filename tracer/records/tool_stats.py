"""Statistics of tool calls: what is said of a tool, and into which spans of time it is cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

LISTED = 10
"""How many of the slowest calls, and of the latest failures, are named."""

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
    """The calls that started (or else were recorded) then; what is None is without bound."""

    since: datetime | None = None
    until: datetime | None = None
    """Before this moment."""


@dataclass(frozen=True)
class CallFigures:
    """How calls went."""

    calls: int
    succeeded: int
    failures: int
    cancelled: int
    abandoned: int
    """Open, and the lease of their recorder ran out."""
    running: int
    """Open otherwise."""
    p50_ms: float | None
    """Half of those that ended took no longer, within 1 %; null where none ended."""
    p95_ms: float | None
    p99_ms: float | None

    @property
    def failure_rate(self) -> float | None:
        """The failures among those that succeeded or failed; null where none did."""
        ended = self.succeeded + self.failures
        return self.failures / ended if ended else None


@dataclass(frozen=True)
class ToolStats(CallFigures):
    """How the calls of one tool went."""

    name: str
    tool_type: str | None
    """The kind of tool; of several, the last by name."""
    latest_at: datetime
    """When the latest call started, or else was recorded."""
    sub_plans: int
    """How many sub-plans the calls opened."""


@dataclass(frozen=True)
class ToolStatsPage:
    """The statistics of all tools."""

    items: list[ToolStats]
    """By name."""
    as_of: datetime | None = None
    """Calls that started more than two hours earlier are counted as of this moment; None: all
    calls are counted as they are now."""


@dataclass(frozen=True)
class CallBucket(CallFigures):
    """How the calls of a span of time went."""

    at: datetime
    """When it begins."""


@dataclass(frozen=True)
class NamedCall:
    """A call that is worth looking at."""

    tool_call_id: UUID
    root_plan_id: UUID
    status: str
    """As it is shown."""
    started_at: datetime | None
    duration_ms: float | None
    error_type: str | None
    error_message: str | None
    """The first 2 kB."""


@dataclass(frozen=True)
class ToolHistory:
    """How the calls of one tool went over time."""

    stats: ToolStats
    bucket_seconds: int
    """How long each bucket is."""
    buckets: list[CallBucket] = field(default_factory=list)
    """In order; those without calls are left out."""
    slowest: list[NamedCall] = field(default_factory=list)
    """The calls that took longest."""
    latest_failures: list[NamedCall] = field(default_factory=list)
    """The failed calls that ended last."""
    as_of: datetime | None = None
    """See `ToolStatsPage.as_of`."""


def bucket_width(first: datetime, last: datetime) -> timedelta:
    """Return how long buckets are that cut the time between two moments into some dozens."""
    least = (last - first) / _MOST_BUCKETS
    for width in _WIDTHS:
        if width >= least:
            return width
    return _WIDTHS[-1] * -(-least // _WIDTHS[-1])
