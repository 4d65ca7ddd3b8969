"""Statistics of tool calls, computed in Python. `postgres/stats/stats.py` does it in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from tracer.errors import RecordNotFound
from tracer.records.record_classes import ActToolInfo, Kind
from tracer.records.status import ABANDONED, Status
from tracer.records.tool_stats import (
    LISTED,
    CallBucket,
    ExampleCall,
    TimeRange,
    ToolHistory,
    ToolStats,
    bucket_width,
)
from tracer.storage.memory.lists import tool_call_is_wanted
from tracer.storage.memory.tree import Records
from tracer.storage.store_rules import moment_of
from tracer.store import ToolCallFilter
from tracer.text import preview

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stats_of_tools(runs: Sequence[Records], period: TimeRange, name: str | None) -> list[ToolStats]:
    """Return the figures of each tool, by name; see `TraceReader.read_tool_stats`."""
    wanted = ToolCallFilter(name=name, since=period.since, until=period.until)
    by_name: dict[str, list[ActToolInfo]] = {}
    for call in _calls(runs, wanted):
        by_name.setdefault(str(call.name), []).append(call)
    opened = Counter(
        (plan.root_plan_id, plan.tool_call_id)
        for records in runs
        for plan in records[Kind.PLAN].values()
    )
    return [
        _stats(tool, calls, sum(opened[call.root_plan_id, call.tool_call_id] for call in calls))
        for tool, calls in sorted(by_name.items(), key=lambda item: item[0].encode())
    ]


def tool_history(runs: Sequence[Records], name: str, period: TimeRange) -> ToolHistory:
    """Return the figures of one tool over time; see `TraceReader.read_tool_history`."""
    rows = stats_of_tools(runs, period, name)
    if not rows:
        raise RecordNotFound("tool", name)
    [stats] = rows
    wanted = ToolCallFilter(name=name, since=period.since, until=period.until)
    calls = list(_calls(runs, wanted))
    width = bucket_width(period.since or min(map(_moment, calls)), period.until or stats.latest_at)
    buckets: dict[datetime, list[ActToolInfo]] = {}
    for call in calls:
        at = _EPOCH + (_moment(call) - _EPOCH) // width * width
        buckets.setdefault(at, []).append(call)
    return ToolHistory(
        stats,
        int(width.total_seconds()),
        [CallBucket(at=at, **_figures(buckets[at])) for at in sorted(buckets)],
        _named(
            sorted(
                (call for call in calls if _duration(call) is not None),
                key=lambda call: (_duration(call), _moment(call), call.tool_call_id),
            )
        ),
        _named(
            sorted(
                (call for call in calls if call.status is Status.FAILED),
                key=lambda call: (
                    call.finished_at or _moment(call),
                    _moment(call),
                    call.tool_call_id,
                ),
            )
        ),
    )


def _calls(runs: Iterable[Records], wanted: ToolCallFilter) -> Iterable[ActToolInfo]:
    return (
        call
        for records in runs
        for call in records[Kind.TOOL_CALL].values()
        if call.name is not None and tool_call_is_wanted(call, wanted)
    )


def _moment(call: ActToolInfo) -> datetime:
    return moment_of(call)


def _duration(call: ActToolInfo) -> float | None:
    if call.started_at is None or call.finished_at is None:
        return None
    return (call.finished_at - call.started_at) / timedelta(milliseconds=1)


def _stats(name: str, calls: list[ActToolInfo], sub_plans: int) -> ToolStats:
    types = [call.tool_type for call in calls if call.tool_type is not None]
    return ToolStats(
        name=name,
        tool_type=max(types, key=str.encode, default=None),
        latest_at=max(map(_moment, calls)),
        sub_plans=sub_plans,
        **_figures(calls),
    )


def _figures(calls: list[ActToolInfo]) -> dict[str, Any]:
    statuses = Counter(call.shown_status for call in calls)
    durations = sorted(d for call in calls for d in [_duration(call)] if d is not None)
    ended = {
        "succeeded": statuses[Status.SUCCEEDED],
        "failures": statuses[Status.FAILED],
        "cancelled": statuses[Status.CANCELLED],
        "abandoned": statuses[ABANDONED],
    }
    return {
        "calls": len(calls),
        **ended,
        "running": len(calls) - sum(ended.values()),
        **{f"p{share}_ms": _percentile(durations, share) for share in (50, 95, 99)},
    }


def _percentile(ordered: list[float], share: int) -> float | None:
    """Return the first value that `share` percent are not greater than, as Postgres does."""
    return ordered[ceil(len(ordered) * share / 100) - 1] if ordered else None


def _named(ordered: list[ActToolInfo]) -> list[ExampleCall]:
    return [
        ExampleCall(
            tool_call_id=call.tool_call_id,
            root_plan_id=call.root_plan_id,
            status=call.shown_status,
            started_at=call.started_at,
            duration_ms=_duration(call),
            error_type=call.error_type,
            error_message=None if call.error_message is None else preview(call.error_message),
        )
        for call in reversed(ordered[-LISTED:])
    ]
