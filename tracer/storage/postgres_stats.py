"""Statistics of tool calls, in SQL.

Where no hour of the range of time is summed up, everything reads its calls by an index, and the
sub-plans since its beginning. Else see `tracer.storage.summed_stats`.
"""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.storage.call_parts import COUNTS, DURATION, PERCENTILES, SHARES
from tracer.storage.engine import PoolConnection
from tracer.storage.named_calls import latest_failures_of, named, slowest_of
from tracer.storage.postgres_lists import Where, list_of_tool_calls
from tracer.storage.summed_hours import HOUR, summed_hours
from tracer.storage.summed_stats import SummedStats, call_bucket
from tracer.storage.tables import START
from tracer.store import ToolCallFilter
from tracer.tool_stats import (
    LISTED,
    TimeRange,
    ToolHistory,
    ToolStats,
    bucket_width,
)


async def read_stats_of_tools(
    connection: PoolConnection, project_id: int, within: TimeRange, name: str | None
) -> list[ToolStats]:
    """Return what is to be said of each tool, by name; see `TraceReader.read_tool_stats`.

    Args:
        connection: Where to ask.
        project_id: Whose calls.
        within: When they started.
        name: One tool alone; None: all.
    """
    await connection.execute(_BY_INDEX)
    if summed := await summed_hours(connection, project_id, within):
        calls = _calls(project_id, TimeRange(), name)
        return await SummedStats(connection, calls, within, summed).of_tools()
    where = _calls(project_id, within, name)
    query = f"""SELECT name, {_OF_TOOL}, {_FIGURES} {_with_sub_plans(where, within)}
        GROUP BY name ORDER BY name"""
    return [ToolStats(**_figures(row)) for row in await _rows(connection, query, where)]


async def read_history_of_tool(
    connection: PoolConnection, project_id: int, name: str, within: TimeRange
) -> ToolHistory:
    """Return what is to be said of one tool over time; see `TraceReader.read_tool_history`."""
    await connection.execute(_BY_INDEX)
    where = _calls(project_id, within, name)
    [ends] = await _rows(connection, f"{_ENDS} WHERE {where}", where)
    if ends["first"] is None:
        raise RecordNotFound("tool", name)
    width = bucket_width(within.since or ends["first"], within.until or ends["latest"])
    summed = await summed_hours(connection, project_id, within) if width >= HOUR else None
    if summed is not None:
        calls = _calls(project_id, TimeRange(), name)
        return await SummedStats(connection, calls, within, summed).history(name, width)
    # With OFFSET, since Citus rolls up what is at hand, and not what lies on its workers.
    query = f"""SELECT date_bin(%(width)s, moment, 'epoch') AS at, {_OF_TOOL}, {_FIGURES}
        FROM (SELECT * {_with_sub_plans(where, within)} OFFSET 0) AS counted
        GROUP BY ROLLUP (at) ORDER BY at NULLS FIRST"""
    where.values |= {"width": width, "most": LISTED}
    of_all, *buckets = map(_figures, await _rows(connection, query, where))
    del of_all["at"]
    return ToolHistory(
        ToolStats(name=name, **of_all),
        int(width.total_seconds()),
        [call_bucket(row.pop("at"), row) for row in buckets],
        [named(row) for row in await _rows(connection, slowest_of(where), where)],
        [named(row) for row in await _rows(connection, latest_failures_of(where), where)],
    )


def _calls(project_id: int, within: TimeRange, name: str | None) -> Where:
    wanted = ToolCallFilter(name=name, since=within.since, until=within.until)
    where = list_of_tool_calls(wanted, project_id, None).along
    where.add("name IS NOT NULL")
    return where


def _with_sub_plans(where: Where, within: TimeRange) -> str:
    """Return the calls, each with how many sub-plans it opened, as the middle of a query."""
    opened = Where(["project_id = %(project_id)s", "tool_call_id IS NOT NULL"])
    opened.add(f"{START} >= %(since)s", since=within.since)
    return f"""FROM (
        SELECT root_plan_id, tool_call_id, name COLLATE "C" AS name, tool_type, status,
            abandoned_at, {START} AS moment, {DURATION} AS duration_ms
        FROM act_tool_info WHERE {where}
    ) AS call
    LEFT JOIN (
        SELECT root_plan_id, tool_call_id, count(*) AS sub_plans
        FROM plan_execution_record WHERE {opened} GROUP BY root_plan_id, tool_call_id
    ) AS opened USING (root_plan_id, tool_call_id)"""


async def _rows(connection: PoolConnection, query: str, where: Where) -> list[dict[str, Any]]:
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(query, where.values)
    return await cursor.fetchall()


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    percentiles = row.pop("percentiles") or [None] * len(SHARES)
    return row | dict(zip(SHARES, percentiles, strict=True))


# The planner does not know that rows lie in the order of time, and would read all that there are
# for a tenth of them; nor how many a tool has then, on which it would try each sub-plan in turn.
# And it takes all of it for so costly that it would compile first.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_nestloop', 'off', true),
    set_config('jit', 'off', true)"""

_ENDS = f"SELECT min({START}) AS first, max({START}) AS latest FROM act_tool_info"

_OF_TOOL = """
    max(tool_type COLLATE "C") AS tool_type, max(moment) AS latest_at,
    coalesce(sum(sub_plans), 0)::int AS sub_plans"""

_FIGURES = f"{COUNTS}, {PERCENTILES}"
