"""Statistics of tool calls, in SQL.

Everything reads the calls of a range of time by an index, and the sub-plans since its beginning.
"""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.records import Kind
from tracer.storage.engine import PoolConnection
from tracer.storage.postgres_lists import Where, list_of_tool_calls
from tracer.storage.postgres_tree import SHOWN_STATUS, payload_expressions
from tracer.storage.tables import IS_FAILED, IS_OPEN, START
from tracer.store import ToolCallFilter
from tracer.text import preview
from tracer.tool_stats import (
    LISTED,
    CallBucket,
    NamedCall,
    TimeRange,
    ToolHistory,
    ToolStats,
    bucket_width,
)


async def read_stats_of_tools(
    connection: PoolConnection, project_id: int, within: TimeRange, name: str | None = None
) -> list[ToolStats]:
    """Return what is to be said of each tool, by name; see `TraceReader.read_tool_stats`.

    Args:
        connection: Where to ask.
        project_id: Whose calls.
        within: When they started.
        name: One tool alone.
    """
    await connection.execute(_BY_INDEX)
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
        [_bucket(row) for row in buckets],
        [_named(row) for row in await _rows(connection, _SLOWEST.format(where), where)],
        [_named(row) for row in await _rows(connection, _FAILURES.format(where), where)],
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
            abandoned_at, {START} AS moment, {_DURATION} AS duration_ms
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
    percentiles = row.pop("percentiles") or [None] * 3
    return row | dict(zip(("p50_ms", "p95_ms", "p99_ms"), percentiles, strict=True))


def _bucket(row: dict[str, Any]) -> CallBucket:
    of_tool = ("tool_type", "latest_at", "sub_plans")
    return CallBucket(**{key: value for key, value in row.items() if key not in of_tool})


def _named(row: dict[str, Any]) -> NamedCall:
    message = row.pop("error_message")
    return NamedCall(**row, error_message=None if message is None else preview(message))


# The planner does not know that rows lie in the order of time, and would read all that there are
# for a tenth of them; nor how many a tool has then, on which it would try each sub-plan in turn.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_nestloop', 'off', true)"""

_ENDS = f"SELECT min({START}) AS first, max({START}) AS latest FROM act_tool_info"

_DURATION = "(extract(epoch FROM finished_at - started_at) * 1000)::float8"

_OF_TOOL = """
    max(tool_type COLLATE "C") AS tool_type, max(moment) AS latest_at,
    coalesce(sum(sub_plans), 0)::int AS sub_plans"""

_FIGURES = f"""
    count(*) AS calls,
    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE {IS_FAILED}) AS failures,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NULL) AS running,
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY duration_ms) AS percentiles"""

_NAMED = f"""
SELECT tool_call_id, root_plan_id, {SHOWN_STATUS} AS status, started_at,
    {_DURATION} AS duration_ms, error_type,
    {payload_expressions(Kind.TOOL_CALL, Payloads.PREVIEW)["error_message"]} AS error_message
FROM act_tool_info WHERE {{}}"""

_SLOWEST = f"""{_NAMED} AND finished_at IS NOT NULL AND started_at IS NOT NULL
ORDER BY duration_ms DESC, tool_call_id DESC LIMIT %(most)s"""

_FAILURES = f"""{_NAMED} AND {IS_FAILED}
ORDER BY coalesce(finished_at, {START}) DESC, tool_call_id DESC LIMIT %(most)s"""
