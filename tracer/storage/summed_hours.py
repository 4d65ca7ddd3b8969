"""Which part of a range of time is answered by summaries of hours, and which by the calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tracer.storage.citus import is_spread_by
from tracer.storage.engine import PoolConnection
from tracer.tool_stats import TimeRange

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Stretch:
    """A stretch of time, from a moment to one that is not part of it."""

    since: datetime | None
    """None: it has no beginning."""
    until: datetime | None
    """None: it has no end."""


@dataclass(frozen=True)
class SummedHours:
    """The hours of a range of time that summaries answer."""

    since: datetime | None
    """The first; None: there is no call before."""
    until: datetime
    """The end of the last."""
    left_out: list[datetime] = field(default_factory=list)
    """The hours between that the calls answer all the same, in order."""

    def rest_of(self, within: TimeRange) -> list[Stretch]:
        """Return what of a range of time is left to the calls."""
        before = [] if self.since is None else [Stretch(within.since, self.since)]
        return [*before, *self._changed(), Stretch(self.until, within.until)]

    def by_hours(self) -> list[Stretch]:
        """Return what summaries of hours answer."""
        changed = self._changed()
        begins = [self.since, *(each.until for each in changed)]
        ends = [*(each.since for each in changed), self.until]
        found = map(Stretch, begins, ends)
        return [each for each in found if each.since != each.until]

    def by_days_and_hours(self) -> tuple[list[Stretch], list[Stretch]]:
        """Return what summaries of days answer, and what then is left to those of hours."""
        days: list[Stretch] = []
        hours: list[Stretch] = []
        for each in self.by_hours():
            assert each.until is not None
            begin = None if each.since is None else _up(each.since, DAY)
            end = _down(each.until, DAY)
            if begin is not None and begin >= end:
                hours.append(each)
                continue
            days.append(Stretch(begin, end))
            hours += [Stretch(each.since, begin)] if begin is not None else []
            hours.append(Stretch(end, each.until))
        return days, [each for each in hours if each.since != each.until]

    def _changed(self) -> list[Stretch]:
        """Return the hours that are left out; those that follow each other together."""
        found: list[Stretch] = []
        for hour in self.left_out:
            if found and found[-1].until == hour:
                found[-1] = Stretch(found[-1].since, hour + HOUR)
            else:
                found.append(Stretch(hour, hour + HOUR))
        return found


def texts(stretches: Sequence[Stretch]) -> tuple[list[str], list[str]]:
    """Return where stretches begin and end, as Postgres reads it."""
    begins = [each.since.isoformat() if each.since else "-infinity" for each in stretches]
    ends = [each.until.isoformat() if each.until else "infinity" for each in stretches]
    return begins, ends


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
        since = _up(min(within.since, until), HOUR)
    if within.until is not None and within.until < until:
        if within.until.year == 1:  # there may be no whole hour before
            return until, until
        until = _down(within.until, HOUR)
    return since, until


def _up(moment: datetime, width: timedelta) -> datetime:
    """Return the first moment from this on at which a stretch of some width begins."""
    return moment + -(moment - _EPOCH) % width


def _down(moment: datetime, width: timedelta) -> datetime:
    """Return the last moment up to this at which one begins."""
    return moment - (moment - _EPOCH) % width


_SUMMED = """
SELECT CASE WHEN since > '0001-01-02Z' THEN since END, until FROM summed_range
WHERE project_id = %(project_id)s"""

# Sub-plans count from the beginning of the range on, where there is one.
_OF_HOURS = """project_id = %(project_id)s AND {hour} < %(last)s
    AND {hour} >= coalesce(%(first)s::timestamptz, '0001-01-02Z')"""
_LEFT_OUT = f"""
SELECT ARRAY(
    SELECT hour FROM changed_hour WHERE {_OF_HOURS.format(hour="hour")} UNION
    SELECT since FROM summed_calls WHERE {_OF_HOURS.format(hour="since")}
        AND hours = 1 AND opened_since < since AND opened_since < %(since)s::timestamptz)"""
