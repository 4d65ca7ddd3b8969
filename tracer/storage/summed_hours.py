"""Which part of a range of time is answered by summaries of hours, and which by the calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tracer.storage.citus import is_spread_by
from tracer.storage.engine import PoolConnection
from tracer.tool_stats import TimeRange

HOUR = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SummedHours:
    """The hours of a range of time that summaries answer."""

    since: datetime | None
    """The first; None: there is no call before."""
    until: datetime
    """The end of the last."""
    left_out: list[datetime] = field(default_factory=list)
    """The hours between that the calls answer all the same."""

    def rest_of(self, within: TimeRange) -> list[tuple[str, str]]:
        """Return what of a range of time is left to the calls: beginnings and ends, as texts."""
        found: list[tuple[str, str]] = []
        if self.since is not None:
            found.append((_text(within.since, "-infinity"), self.since.isoformat()))
        found += [(begin.isoformat(), end.isoformat()) for begin, end in _stretches(self.left_out)]
        found.append((self.until.isoformat(), _text(within.until, "infinity")))
        return [(begin, end) for begin, end in found if begin != end]


async def summed_hours(
    connection: PoolConnection, project_id: int, within: TimeRange
) -> SummedHours | None:
    """Return the hours of a range of time that summaries answer; None where there are none.

    Args:
        connection: In a snapshot, which what is asked next sees, too.
        project_id: Whose hours.
        within: The range.
    """
    if await is_spread_by(connection):
        return None
    given: dict[str, Any] = {"project_id": project_id, "since": within.since}
    cursor = await connection.execute(_SUMMED, given)
    row = await cursor.fetchone()
    if row is None:
        return None
    since, until = _whole_hours(within, *row)
    if since is not None and since >= until:
        return None
    given |= {"first": since, "last": until}
    [(left_out,)] = await (await connection.execute(_LEFT_OUT, given)).fetchall()
    return SummedHours(since, until, sorted(left_out))


def _whole_hours(
    within: TimeRange, since: datetime | None, until: datetime
) -> tuple[datetime | None, datetime]:
    """Return where the hours begin and end that are summed up, and whole in a range."""
    if within.since is not None and (since is None or within.since > since):
        # Beyond the end it is none of these hours, and may be too late for a whole one.
        since = min(within.since, until)
        since += -(since - _EPOCH) % HOUR
    if within.until is not None and within.until < until:
        if within.until.year == 1:  # there may be no whole hour before
            return until, until
        until = within.until - (within.until - _EPOCH) % HOUR
    return since, until


def _stretches(hours: Iterable[datetime]) -> Iterable[tuple[datetime, datetime]]:
    """Return where hours that follow each other begin and end."""
    found: list[tuple[datetime, datetime]] = []
    for hour in hours:
        if found and found[-1][1] == hour:
            found[-1] = (found[-1][0], hour + HOUR)
        else:
            found.append((hour, hour + HOUR))
    return found


def _text(moment: datetime | None, otherwise: str) -> str:
    return otherwise if moment is None else moment.isoformat()


_SUMMED = """
SELECT CASE WHEN since > '0001-01-02Z' THEN since END, until FROM summed_range
WHERE project_id = %(project_id)s"""

# Sub-plans count from the beginning of the range on, where there is one.
_OF_HOURS = """project_id = %(project_id)s AND hour < %(last)s
    AND hour >= coalesce(%(first)s::timestamptz, '0001-01-02Z')"""
_LEFT_OUT = f"""
SELECT ARRAY(
    SELECT hour FROM changed_hour WHERE {_OF_HOURS} UNION
    SELECT hour FROM tool_hour
    WHERE {_OF_HOURS} AND opened_since < hour AND opened_since < %(since)s::timestamptz)"""
