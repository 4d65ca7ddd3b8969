"""The clock. No other module reads the current time, so that tests can replace it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime in UTC. Injected wherever times are recorded."""


def utc_now() -> datetime:
    """Return the current time in UTC, as an aware datetime."""
    return datetime.now(UTC)


def steady_clock(now: Clock = utc_now, elapsed: Callable[[], float] = time.monotonic) -> Clock:
    """Return a clock that never goes back: a record must not finish before it started.

    If the system's clock is set back, this one goes on by the monotonic clock.

    Args:
        now: The system's clock.
        elapsed: The monotonic clock, in seconds.
    """
    begin, begin_elapsed = now(), elapsed()

    def read() -> datetime:
        nonlocal begin, begin_elapsed
        at = elapsed()
        steady, moment = begin + timedelta(seconds=at - begin_elapsed), now()
        if moment < steady:
            return steady
        begin, begin_elapsed = moment, at
        return moment

    return read


steady_now = steady_clock()
"""The clock of recorders in this process."""


def time_zone(name: object) -> ZoneInfo:
    """Return the time zone with an IANA name such as `Asia/Shanghai`.

    Raises:
        ValueError: The IANA database contains no such time zone.
    """
    try:
        if isinstance(name, str) and name:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: `Asia` is a directory
        pass
    raise ValueError("no time zone of the IANA database has this name")
