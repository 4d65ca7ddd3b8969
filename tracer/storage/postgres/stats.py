"""Statistics of tool calls, with the slowest and the latest failed calls as examples, in SQL.

Whole hours come from the roll-ups (`tracer.storage.postgres.rollups`), as of
`project.summed_at`. Newer hours and the edges of a range come from the calls. Before the first pass
of the roll-up job, all figures come from the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.records import ABANDONED, Kind
from tracer.records.pages import (
    LISTED,
    CallBucket,
    CallCounts,
    ExampleCall,
    TimeRange,
    ToolHistory,
    ToolStats,
    ToolStatsPage,
    bucket_width,
)
from tracer.storage.postgres.histograms import percentile
from tracer.storage.postgres.lists import Where, list_of_tool_calls
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rollups import (
    COUNTED,
    DURATION,
    FAILED_AT,
    FIGURES,
    OWN_SHARES,
    SHARES,
    added_up,
    calls_of,
    exact_figures,
    figures,
)
from tracer.storage.postgres.run_tables import abandoned_at
from tracer.storage.postgres.tables import (
    IS_FAILED,
    IS_OPEN,
    START,
    is_text,
)
from tracer.storage.postgres.tree import payload_expressions
from tracer.store import ToolCallFilter
from tracer.text import preview


def _named(status: str) -> str:
    """Return the SELECT clause of queries for the calls that are shown as examples.

    Args:
        status: The SQL of the status that the API shows.
    """
    message = payload_expressions(Kind.TOOL_CALL, Payloads.PREVIEW)["error_message"]
    return f"""SELECT tool_call_id, root_plan_id, {status} AS status, started_at,
        {DURATION} AS duration_ms, reason, error_type, {message} AS error_message"""


_ENDED = _named("status::text")
_ABANDONED = _named(f"'{ABANDONED}'")

# Ordered by start as well: then only the hours with the greatest figures need to be searched.
_LATER = f"{START} DESC, tool_call_id DESC"

_SUMMED_AT = "SELECT summed_at FROM project WHERE project_id = %(project_id)s"

# The planner does not know that calls are stored in the order of time, and would scan the whole
# table for a tenth of it. It also expects such high costs that it would compile the query first.
_BY_INDEX = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"


HAS_TAKEN = "finished_at IS NOT NULL AND started_at IS NOT NULL"
"""The condition for calls that have a duration."""


def slowest(calls: str) -> str:
    """Return a query for the `most` slowest calls.

    Args:
        calls: The end of a query for calls, from `FROM` on.
    """
    return f"{_ENDED} {calls} ORDER BY duration_ms DESC, {_LATER} LIMIT %(most)s"


def latest_failed(calls: str) -> str:
    """Return a query for the `most` calls that failed last. All `calls` have failed."""
    return f"{_ENDED} {calls} ORDER BY {FAILED_AT} DESC, {_LATER} LIMIT %(most)s"


def latest_abandoned(calls: str) -> str:
    """Return a query for the `most` calls that started last. All `calls` are abandoned."""
    return f"{_ABANDONED} {calls} ORDER BY {_LATER} LIMIT %(most)s"


IS_ABANDONED = f"{IS_OPEN} AND {abandoned_at('act_tool_info')} IS NOT NULL"


def named(row: dict[str, Any]) -> ExampleCall:
    """Return an example call from a row of `slowest`, `latest_failed` or `latest_abandoned`."""
    message = row.pop("error_message")
    return ExampleCall(**row, error_message=None if message is None else preview(message))


HOUR = timedelta(hours=1)

LIVE_HOURS = 1
"""How many whole hours before the last roll-up are also read from the calls, because most changes
of calls arrive within this time after their start."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]
Interval = tuple[str, str]
"""The beginning and the end of a time interval, in Postgres's format. The end is excluded."""


def read_stats_of_tools(
    connection: SyncConnection, project_id: int, period: TimeRange, name: str | None
) -> ToolStatsPage:
    """Return the statistics of each tool, sorted by name.

    Args:
        connection: In a transaction with one snapshot.
        project_id: The project.
        period: When the calls started.
        name: Only this tool; None: all.
    """
    source = _source(connection, project_id, period, name)
    items = _of_tools(source)
    if not items:
        return ToolStatsPage([], as_of=source.as_of)
    width = source.width(period)
    over_time = source.without_hours(period) if width < HOUR else source
    counts: dict[str, list[CallCounts]] = {}
    for row in over_time.counts(width):
        counts.setdefault(row.pop("name"), []).append(CallCounts(**row))
    return ToolStatsPage(items, int(width.total_seconds()), counts, source.as_of)


def read_history_of_tool(
    connection: SyncConnection, project_id: int, name: str, period: TimeRange
) -> ToolHistory:
    """Return the statistics of one tool over time.

    Raises:
        RecordNotFound: The tool was not called in this time.
    """
    source = _source(connection, project_id, period, name)
    width = source.width(period)
    if width < HOUR:
        source = source.without_hours(period)
    stats = _of_tools(source)
    if not stats:
        raise RecordNotFound("tool", name)
    binned = "date_bin(%(width)s, {}, 'epoch')"
    buckets = source.figures("at", f"{binned.format('hour')} AS at", binned, width=width)
    return ToolHistory(
        stats[0],
        int(width.total_seconds()),
        [CallBucket(at=row["at"], **_figures(row)) for row in buckets],
        source.named(slowest, HAS_TAKEN, "greatest_ms"),
        source.named(latest_failed, IS_FAILED, "failed_at"),
        source.named(latest_abandoned, IS_ABANDONED, "CASE WHEN abandoned > 0 THEN hour END"),
        source.as_of,
    )


def _of_tools(source: _Source) -> list[ToolStats]:
    return [
        ToolStats(
            name=row["name"],
            tool_type=row["tool_type"],
            latest_at=row["latest_at"],
            sub_plans=row["sub_plans"],
            **_figures(row),
        )
        for row in source.figures("name", 'tool_name COLLATE "C" AS name')
    ]


def _figures(row: Row) -> Row:
    if "percentiles" in row:
        of_durations = row["percentiles"] or [None] * len(SHARES)
        of_own_times = row["own_percentiles"] or [None] * len(SHARES)
    else:
        greatest = row["greatest_ms"]
        of_durations = of_own_times = _percentiles(row["buckets"], row["bucket_counts"], greatest)
        if row["own_buckets"] is not None:
            # An own time is at most the duration.
            of_own_times = _percentiles(row["own_buckets"], row["own_bucket_counts"], greatest)
    counts = {name: row[name] for name in COUNTED if name != "sub_plans"}
    percentiles = zip((*SHARES, *OWN_SHARES), (*of_durations, *of_own_times), strict=True)
    return counts | dict(percentiles)


def _percentiles(
    buckets: list[int], counts: list[int], greatest: float | None
) -> list[float | None]:
    if greatest is None:  # No call has ended.
        return [None] * len(SHARES)
    histogram = dict(zip(buckets, counts, strict=True))
    return [percentile(histogram, share, greatest) for share in SHARES.values()]


@dataclass(frozen=True)
class _Source:
    """The sources of a time range's statistics: calls, roll-ups, or both."""

    connection: SyncConnection
    calls: Where
    """Selects the calls of the project or tool, without a condition on their start."""
    live: list[Interval]
    """The time intervals whose statistics are computed from calls."""
    stored: Interval | None = None
    """The time interval whose statistics come from the roll-ups; None if no roll-ups are used."""
    as_of: datetime | None = None
    """The time as of which the roll-ups are complete; None if no roll-ups are used."""

    def without_hours(self, period: TimeRange) -> _Source:
        """Return a source that reads the whole range from the calls."""
        return _Source(self.connection, self.calls, [_interval(period.since, period.until)])

    def width(self, period: TimeRange) -> timedelta:
        """Return the length of a bucket that divides `period` into a suitable number of buckets.

        If `period` has no beginning or no end, the first or the latest start of a call is used.
        """
        query = f"""
        SELECT min({START}) AS first, max({START}) AS latest FROM act_tool_info
        WHERE {self.calls} AND {START} >= %(since)s::text::timestamptz
            AND {START} < %(until)s::text::timestamptz"""
        since, until = _interval(period.since, period.until)
        [row] = self._fetch_all(query, since=since, until=until)
        first, last = period.since or row["first"], period.until or row["latest"]
        return bucket_width(first or _EPOCH, last or _EPOCH)

    def counts(self, width: timedelta) -> list[Row]:
        """Return the counts of each tool per time bucket, sorted by name and time."""
        at = "date_bin(%(width)s, {}, 'epoch') AS at"
        parts = [
            f"""SELECT name COLLATE "C" AS name, {at.format(START)}, 1 AS calls,
                CASE WHEN {IS_FAILED} THEN 1 ELSE 0 END AS failed
            {self._from_calls(self.live)}"""
        ]
        if self.stored is not None:
            parts.append(
                f"""SELECT tool_name COLLATE "C", {at.format("hour")}, calls, failed
                FROM {self._from_hours()}"""
            )
        query = f"""
        SELECT name, at, sum(calls)::bigint AS calls, sum(failed)::bigint AS failed
        FROM ({" UNION ALL ".join(parts)}) AS part GROUP BY name, at ORDER BY name, at"""
        return self._fetch_all(query, width=width)

    def figures(self, key: str, of_hour: str, at: str = "{}", **values: Any) -> list[Row]:
        """Return the figures of calls, grouped and sorted by a column.

        Args:
            key: The column, either `name` or `at`.
            of_hour: The SQL of this column for a row of `tool_hour`.
            at: The SQL of the column `at` for a call, in which `{}` is the call's start.
            values: The parameters of these expressions.
        """
        calls = calls_of(self._from_calls(self.live), at)
        if self.stored is None:
            query = exact_figures(calls, key)
        else:
            columns = ", ".join(FIGURES)
            hours = f"SELECT {of_hour}, {columns} FROM {self._from_hours()}"
            query = added_up(f"{hours} UNION ALL {figures(calls, [key])}", [key])
        return self._fetch_all(f"{query} ORDER BY {key}", **values)

    def named(self, query: Callable[[str], str], condition: str, figure: str) -> list[ExampleCall]:
        """Return the example calls that a query finds.

        Args:
            query: Returns the query, given the SQL from `FROM` on that selects calls.
            condition: The condition on the calls, as SQL.
            figure: A column of `tool_hour`. The hours in which it is greatest are searched.
        """
        intervals = self.live
        if self.stored is not None:
            # Each of these hours has a call that comes before all calls of any other hour.
            hours = f"""
            SELECT hour::text AS since, (hour + interval '1 hour')::text AS until
            FROM {self._from_hours()} AND {figure} IS NOT NULL
            ORDER BY {figure} DESC, hour DESC LIMIT %(most)s"""
            slow_hours = self._fetch_all(hours, most=LISTED)
            intervals = [*intervals, *((row["since"], row["until"]) for row in slow_hours)]
        calls = query(f"{self._from_calls(intervals)} AND {condition}")
        return [named(row) for row in self._fetch_all(calls, most=LISTED)]

    def _from_calls(self, intervals: Sequence[Interval]) -> str:
        """Return the SQL, from `FROM` on, for the calls that started in one of the intervals."""
        # A join with the intervals would not use the index of starts. The literals are moments in
        # ISO format, never a client's text.
        started = " OR ".join(
            f"{START} >= '{since}'::timestamptz AND {START} < '{until}'::timestamptz"
            for since, until in intervals
        )
        return f"FROM act_tool_info WHERE {self.calls} AND ({started})"

    def _from_hours(self) -> str:
        of_tool = is_text("tool_name", "name") if "name" in self.calls.values else "true"
        return f"""tool_hour WHERE project_id = %(project_id)s AND {of_tool}
            AND hour >= %(first)s::text::timestamptz AND hour < %(last)s::text::timestamptz"""

    def _fetch_all(self, query: str, **values: Any) -> list[Row]:
        first, last = self.stored or (None, None)
        values |= self.calls.values | {"first": first, "last": last}
        cursor = self.connection.cursor(row_factory=dict_row)
        cursor.execute(query, values)
        return cursor.fetchall()


def _source(
    connection: SyncConnection, project_id: int, period: TimeRange, name: str | None
) -> _Source:
    connection.execute(_BY_INDEX)
    calls = list_of_tool_calls(ToolCallFilter(name=name), project_id, None).along
    calls.add("name IS NOT NULL")
    everything = _Source(connection, calls, [_interval(period.since, period.until)])
    cursor = connection.execute(_SUMMED_AT, calls.values)
    row = cursor.fetchone()
    if row is None or row[0] is None:
        return everything
    as_of: datetime = row[0]
    last = _hour_of(as_of) - LIVE_HOURS * HOUR
    if period.until is not None and period.until < last:
        if period.until.year == 1:  # there may be no earlier hour
            return everything
        last = _hour_of(period.until)
    first = period.since
    if first is not None:
        if first >= last:
            return everything
        first = first + -(first - _EPOCH) % HOUR
        if first >= last:
            return everything
    live = [_interval(last, period.until)]
    if period.since is not None:
        live.append(_interval(period.since, first))
    return _Source(connection, calls, live, _interval(first, last), as_of)


def _hour_of(moment: datetime) -> datetime:
    return moment - (moment - _EPOCH) % HOUR


def _interval(since: datetime | None, until: datetime | None) -> Interval:
    return (
        "-infinity" if since is None else since.isoformat(),
        "infinity" if until is None else until.isoformat(),
    )
