"""The clock: the one place that asks what time it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Clock = Callable[[], datetime]
"""Answers the present moment as an aware UTC datetime. Injected wherever a time is recorded."""


def utc_now() -> datetime:
    """Return the present moment, aware, in UTC, to the microsecond."""
    return datetime.now(UTC)


def stepping_clock(start: datetime, step: timedelta = timedelta(milliseconds=1)) -> Clock:
    """Return a clock that moves on by `step` each time it is read; for tests and examples.

    Args:
        start: What the first reading answers; aware.
        step: How far it moves between two readings.
    """
    moment = start - step

    def read() -> datetime:
        nonlocal moment
        moment += step
        return moment

    return read


def time_zone(name: object) -> ZoneInfo:
    """Return the time zone with an IANA name, such as `Asia/Shanghai`.

    Raises:
        ValueError: The IANA database has no such time zone.
    """
    try:
        if isinstance(name, str) and name:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: `Asia` is a directory
        pass
    raise ValueError("no time zone of the IANA database has this name")
