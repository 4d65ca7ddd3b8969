"""A clock that advances by a step at each reading."""

from __future__ import annotations

from datetime import datetime, timedelta

from tracer.clock import Clock


def stepping_clock(start: datetime, step: timedelta = timedelta(milliseconds=1)) -> Clock:
    """Return a clock that advances by `step` at each reading.

    Args:
        start: The first time, as an aware datetime.
        step: The difference between two readings.
    """
    moment = start - step

    def read() -> datetime:
        nonlocal moment
        moment += step
        return moment

    return read
