"""Histogram of runs: how many runs match a filter, in total and per time interval."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

MOST_BINS = 60
"""An interval is the shortest of `INTERVALS` of which so many cover the range."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

INTERVALS = (
    *(1, 5, 15, 30),
    *(minutes * _MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * _HOUR for hours in (1, 3, 6, 12)),
    *(days * _DAY for days in (1, 7, 28, 91, 364, 3_640)),
)
"""The lengths of an interval in seconds."""


@dataclass(frozen=True)
class RunBin:
    """The number of runs that started in one interval."""

    start: datetime
    """The start of the interval, a multiple of its length since 1970."""
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
    """If the limit of examined runs was reached, the start of the last one. More may match."""


def interval_for(seconds: float) -> int:
    """Return the interval length, in seconds, for a histogram of a time range.

    Args:
        seconds: The length of the time range.
    """
    fitting = (each for each in INTERVALS if each * MOST_BINS >= seconds)
    return next(fitting, INTERVALS[-1])
