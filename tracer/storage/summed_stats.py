"""Statistics of a range of time in which hours are summed up.

Counts are added up of summaries and calls, and so are histograms, which percentiles come from then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import dict_row

from tracer.storage.call_parts import (
    COUNTED,
    PERCENTILES,
    PIECES,
    SHARES,
    calls_within,
    parts,
    summed_parts,
)
from tracer.storage.duration_buckets import percentile
from tracer.storage.engine import PoolConnection
from tracer.storage.named_calls import HAS_TAKEN, latest_failures, named, slowest
from tracer.storage.postgres_lists import Where
from tracer.storage.summed_hours import DAY, Stretch, SummedHours, texts
from tracer.storage.tables import IS_FAILED, START, is_text, start_of
from tracer.tool_stats import LISTED, CallBucket, TimeRange, ToolHistory, ToolStats

Row = dict[str, Any]


@dataclass(frozen=True)
class SummedStats:
    """What is asked for: some calls of a range of time, of one tool or of all."""

    connection: PoolConnection
    calls: Where
    """Which calls, whenever they started."""
    within: TimeRange
    """When they started."""
    summed: SummedHours
    """The hours that are summed up."""

    async def of_tools(self) -> list[ToolStats]:
        """Return what is to be said of each tool, by name."""
        found = await self._parts("name", "name", "name", "tool_name", by_days=True)
        by_name: dict[str, list[Row]] = {}
        for row in found:
            by_name.setdefault(row.pop("name"), []).append(row)
        return [
            ToolStats(name=name, **_figures(rows))
            for name, rows in sorted(by_name.items(), key=lambda item: item[0].encode())
        ]

    async def history(self, name: str, width: timedelta) -> ToolHistory:
        """Return what is to be said of one tool over time.

        Args:
            name: The tool.
            width: How long buckets are: hours.
        """
        binned = "date_bin(%(width)s, {}, 'epoch')"
        found = await self._parts(
            "at",
            binned.format("moment"),
            "ROLLUP (at)",
            binned.format("summed.since"),
            by_days=width >= DAY,
            width=width,
        )
        by_bucket: dict[Any, list[Row]] = {}
        for row in found:
            by_bucket.setdefault(row.pop("at"), []).append(row)
        of_calls = by_bucket.pop(None)
        every = [row for rows in by_bucket.values() for row in rows]
        of_all = every if any("percentiles" not in row for row in every) else of_calls
        return ToolHistory(
            ToolStats(name=name, **_figures(of_all)),
            int(width.total_seconds()),
            [call_bucket(at, _figures(by_bucket[at])) for at in sorted(by_bucket)],
            [named(row) for row in await self._named(slowest, HAS_TAKEN, _SLOWEST_HOURS)],
            [named(row) for row in await self._named(latest_failures, IS_FAILED, _FAILED_HOURS)],
        )

    async def _parts(
        self, key: str, of_call: str, grouping: str, of_hours: str, *, by_days: bool, **given: Any
    ) -> list[Row]:
        """Return how calls went, by one thing: from calls and from summaries.

        Args:
            key: What the thing is called.
            of_call: What it is of a call.
            grouping: How calls are grouped by it.
            of_hours: What it is of a summary.
            by_days: Whether summaries of days will do where there are whole ones.
            given: What these name besides.
        """
        opened = Where(["plan.project_id = %(project_id)s"])
        opened.add(f"{start_of('plan')} >= %(since)s", since=self.within.since)
        calls = calls_within(PIECES, str(self.calls), str(opened), of_call)
        rows = await self._rows(parts(calls, [key], PERCENTILES, grouping), **given)
        days, hours = self.summed.by_days_and_hours() if by_days else ([], self.summed.by_hours())
        summaries = f"SELECT {of_hours} AS {key}, summed.* FROM {self._summaries()}"
        given |= _given(days, hours)
        return rows + await self._rows(summed_parts(summaries, [key]), **given)

    async def _named(self, query: Callable[[str], str], which: str, hours: str) -> list[Row]:
        """Return the calls that a query names: of the hours that may have them, and the rest."""
        calls = f"""
        FROM (
            SELECT * FROM {PIECES} UNION ALL
            {hours.format(self._summaries())}
        ) AS piece, LATERAL (
            SELECT * FROM act_tool_info WHERE {self.calls} AND {which}
                AND {START} >= piece.since AND {START} < piece.until OFFSET 0
        ) AS call"""
        return await self._rows(query(calls), most=LISTED, **_given([], self.summed.by_hours()))

    def _summaries(self) -> str:
        """Return the summaries of what `_given` gives, as the rows `summed`."""
        of_tool = is_text("tool_name", "name")
        return f"""{_SUMMED_PIECES}, LATERAL (
            SELECT * FROM summed_calls
            WHERE project_id = %(project_id)s AND hours = piece.hours
                AND since >= piece.since AND since < piece.until
                AND {of_tool if "name" in self.calls.values else "true"} OFFSET 0
        ) AS summed"""

    async def _rows(self, query: str, **given: Any) -> list[Row]:
        sinces, untils = texts(self.summed.rest_of(self.within))
        given |= self.calls.values
        given |= {"since": self.within.since, "sinces": sinces, "untils": untils}
        cursor = self.connection.cursor(row_factory=dict_row)
        await cursor.execute(query, given)
        return await cursor.fetchall()


def _given(days: Sequence[Stretch], hours: Sequence[Stretch]) -> dict[str, Any]:
    """Return what says which stretches are those of days, and which those of hours."""
    begins, ends = texts([*days, *hours])
    return {"widths": [24] * len(days) + [1] * len(hours), "begins": begins, "ends": ends}


def call_bucket(at: datetime, figures: Row) -> CallBucket:
    """Return a bucket from figures, which may also say what is only told of a whole tool."""
    of_tool = ("tool_type", "latest_at", "sub_plans")
    return CallBucket(at=at, **{key: each for key, each in figures.items() if key not in of_tool})


def _figures(rows: Iterable[Row]) -> Row:
    """Return what is to be said of calls, of how parts of them went."""
    rows = list(rows)
    figures: Row = {name: sum(row[name] for row in rows) for name in COUNTED}
    types = [row["tool_type"] for row in rows if row["tool_type"] is not None]
    figures["tool_type"] = max(types, key=str.encode, default=None)
    figures["latest_at"] = max(row["latest_at"] for row in rows)
    return figures | dict(zip(SHARES, _percentiles(rows), strict=True))


def _percentiles(rows: list[Row]) -> list[float | None]:
    if len(rows) == 1 and "percentiles" in rows[0]:  # no summary takes part
        return rows[0]["percentiles"] or [None] * len(SHARES)
    histogram: Counter[int] = Counter()
    for row in rows:
        if row["buckets"] is not None:
            histogram.update(dict(zip(row["buckets"], row["bucket_counts"], strict=True)))
    if not histogram:
        return [None] * len(SHARES)
    least = min(row["least_ms"] for row in rows if row["least_ms"] is not None)
    greatest = max(row["greatest_ms"] for row in rows if row["greatest_ms"] is not None)
    return [percentile(histogram, share, least, greatest) for share in SHARES.values()]


_SUMMED_PIECES = """
unnest(%(widths)s::smallint[], %(begins)s::text[]::timestamptz[], %(ends)s::text[]::timestamptz[])
    AS piece (hours, since, until)"""

_HOURS = """(
    SELECT summed.since, summed.since + interval '1 hour' FROM {{}}
    WHERE {call} IS NOT NULL ORDER BY {moment} DESC, {call} DESC LIMIT %(most)s)"""

# Each of these hours has one of the greatest itself, so that no other hour has any of them.
_SLOWEST_HOURS = _HOURS.format(moment="greatest_ms", call="slowest_id")
_FAILED_HOURS = _HOURS.format(moment="failed_at", call="failed_id")
