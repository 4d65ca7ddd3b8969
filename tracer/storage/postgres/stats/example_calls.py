"""The calls that statistics name, in SQL: the slowest, and the failed ones that ended last."""

from __future__ import annotations

from typing import Any

from tracer.lineage.tree import Payloads
from tracer.records.record_classes import Kind
from tracer.records.tool_stats import NamedCall
from tracer.storage.postgres.read.tree import payload_expressions
from tracer.storage.postgres.schema.tables import START
from tracer.storage.postgres.stats.figures_sql import DURATION, FAILED_AT
from tracer.text import preview

_NAMED = f"""
SELECT tool_call_id, root_plan_id, status::text AS status, started_at,
    {DURATION} AS duration_ms, error_type,
    {payload_expressions(Kind.TOOL_CALL, Payloads.PREVIEW)["error_message"]} AS error_message"""

# By start first, so that the hours with the greatest figures are enough to look in.
_LATER = f"{START} DESC, tool_call_id DESC"

HAS_TAKEN = "finished_at IS NOT NULL AND started_at IS NOT NULL"
"""Which calls may be the slowest."""


def slowest(calls: str) -> str:
    """Return a query for the slowest calls, at most `most`.

    Args:
        calls: Where they are from: the end of a query.
    """
    return f"{_NAMED} {calls} ORDER BY duration_ms DESC, {_LATER} LIMIT %(most)s"


def latest_failures(calls: str) -> str:
    """Return the same for those that failed last; `calls` are those that failed."""
    return f"{_NAMED} {calls} ORDER BY {FAILED_AT} DESC, {_LATER} LIMIT %(most)s"


def named(row: dict[str, Any]) -> NamedCall:
    """Return a call from a row of these queries."""
    message = row.pop("error_message")
    return NamedCall(**row, error_message=None if message is None else preview(message))
