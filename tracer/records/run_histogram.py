"""Histogram of runs: how many runs match a filter, in total and per time interval."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

MOST_BINS = 60
"""The maximum number of intervals of a histogram."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

INTERVALS = (
    *(1, 5, 15, 30),
    *(minutes * _MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * _HOUR for hours in (1, 3, 6, 12)),
    *(days * _DAY for days in (1, 7, 28, 91, 364, 3_640)),
)
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
    counted_back_to: datetime | None = None
    """The start of the last examined run, if the limit of examined runs was reached. Earlier runs
    may match, too, but are not counted."""
