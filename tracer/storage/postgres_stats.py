"""Statistics of tool calls, in SQL."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.records import Kind
from tracer.storage.engine import PoolConnection
from tracer.storage.postgres_lists import tool_calls_where
from tracer.storage.postgres_tree import SHOWN_STATUS, payload_expressions
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
    where, given = _calls(project_id, within, name)
    query = f"""
    SELECT name, max(tool_type COLLATE "C") AS tool_type, max({_MOMENT}) AS latest_at,
        coalesce(sum(opened.sub_plans), 0)::int AS sub_plans, {_FIGURES}
    FROM act_tool_info AS call
    LEFT JOIN (
        SELECT root_plan_id, tool_call_id, count(*) AS sub_plans FROM plan_execution_record
        WHERE project_id = %(project_id)s AND tool_call_id IS NOT NULL
        GROUP BY root_plan_id, tool_call_id
    ) AS opened USING (root_plan_id, tool_call_id)
    WHERE {where}
    GROUP BY name ORDER BY name COLLATE "C" """
    return [ToolStats(**_figures(row)) for row in await _rows(connection, query, given)]


async def read_history_of_tool(
    connection: PoolConnection, project_id: int, name: str, within: TimeRange
) -> ToolHistory:
    """Return what is to be said of one tool over time; see `TraceReader.read_tool_history`."""
    found = await read_stats_of_tools(connection, project_id, within, name)
    if not found:
        raise RecordNotFound("tool", name)
    [stats] = found
    where, given = _calls(project_id, within, name)
    first = within.since or (await _rows(connection, _FIRST.format(where), given))[0]["first"]
    width = bucket_width(first, within.until or stats.latest_at)
    given |= {"width": width, "most": LISTED}
    buckets = await _rows(connection, _BUCKETS.format(where), given)
    slowest = await _rows(connection, _SLOWEST.format(where), given)
    failures = await _rows(connection, _FAILURES.format(where), given)
    return ToolHistory(
        stats,
        int(width.total_seconds()),
        [CallBucket(**_figures(row)) for row in buckets],
        [_named(row) for row in slowest],
        [_named(row) for row in failures],
    )


def _calls(project_id: int, within: TimeRange, name: str | None) -> tuple[str, dict[str, Any]]:
    wanted = ToolCallFilter(name=name, since=within.since, until=within.until)
    where = tool_calls_where(wanted, project_id, None)
    where.add("call.name IS NOT NULL")
    return str(where), where.values


async def _rows(
    connection: PoolConnection, query: str, given: dict[str, Any]
) -> list[dict[str, Any]]:
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(query, given)
    return await cursor.fetchall()


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    percentiles = row.pop("percentiles") or [None] * 3
    return row | dict(zip(("p50_ms", "p95_ms", "p99_ms"), percentiles, strict=True))


def _named(row: dict[str, Any]) -> NamedCall:
    message = row.pop("error_message")
    return NamedCall(**row, error_message=None if message is None else preview(message))


_MOMENT = "coalesce(call.started_at, call.recorded_at)"

_DURATION = "(extract(epoch FROM call.finished_at - call.started_at) * 1000)::float8"

_IS_OPEN = "call.status < 'cancelled'"

_FIGURES = f"""
    count(*) AS calls,
    count(*) FILTER (WHERE call.status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE call.status = 'failed') AS failures,
    count(*) FILTER (WHERE call.status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE {_IS_OPEN} AND call.abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE {_IS_OPEN} AND call.abandoned_at IS NULL) AS running,
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY {_DURATION}) AS percentiles"""

_FIRST = f"SELECT min({_MOMENT}) AS first FROM act_tool_info AS call WHERE {{}}"

_BUCKETS = f"""
SELECT date_bin(%(width)s, {_MOMENT}, 'epoch') AS at, {_FIGURES}
FROM act_tool_info AS call WHERE {{}} GROUP BY at ORDER BY at"""

_NAMED = f"""
SELECT tool_call_id, root_plan_id, {SHOWN_STATUS} AS status, started_at,
    {_DURATION} AS duration_ms, error_type,
    {payload_expressions(Kind.TOOL_CALL, Payloads.PREVIEW)["error_message"]} AS error_message
FROM act_tool_info AS call WHERE {{}}"""

_SLOWEST = f"""{_NAMED} AND finished_at IS NOT NULL AND started_at IS NOT NULL
ORDER BY duration_ms DESC, tool_call_id DESC LIMIT %(most)s"""

_FAILURES = f"""{_NAMED} AND status = 'failed'
ORDER BY coalesce(finished_at, started_at, recorded_at) DESC, tool_call_id DESC LIMIT %(most)s"""
