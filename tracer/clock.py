"""The clock. No other module reads the current time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime in UTC. Injected wherever times are recorded."""


def utc_now() -> datetime:
    """Return the current time, aware, in UTC, to the microsecond."""
    return datetime.now(UTC)


def stepping_clock(start: datetime, step: timedelta = timedelta(milliseconds=1)) -> Clock:
    """Return a clock that advances by `step` each time it is read, for tests and examples.

    Args:
        start: The first time; aware.
        step: The difference between two times.
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
