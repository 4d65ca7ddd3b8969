"""Statistics of tool calls, computed in Python. `postgres/stats/stats.py` uses SQL instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any
from uuid import UUID

from tracer.errors import RecordNotFound
from tracer.records.record_classes import ActToolInfo, Kind, PlanExecutionRecord
from tracer.records.status import ABANDONED, Status
from tracer.records.tool_stats import (
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
from tracer.storage.memory.lists import tool_call_is_wanted
from tracer.storage.memory.tree import Records
from tracer.storage.store_rules import moment_of
from tracer.store import ToolCallFilter
from tracer.text import preview

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stats_page(runs: Sequence[Records], period: TimeRange, name: str | None) -> ToolStatsPage:
    """Return the figures of each tool, or only of the tool `name`, sorted by name."""
    items = _stats_of_tools(runs, period, name)
    if not items:
        return ToolStatsPage([])
    wanted = ToolCallFilter(name=name, since=period.since, until=period.until)
    calls = list(_calls(runs, wanted))
    width = _width(calls, period)
    by_name: dict[str, dict[datetime, list[ActToolInfo]]] = {}
    for call in calls:
        buckets = by_name.setdefault(str(call.name), {})
        buckets.setdefault(_bucket(call, width), []).append(call)
    counts = {
        tool: [
            CallCounts(at, len(buckets[at]), sum(c.status is Status.FAILED for c in buckets[at]))
            for at in sorted(buckets)
        ]
        for tool, buckets in by_name.items()
    }
    return ToolStatsPage(items, int(width.total_seconds()), counts)


def _width(calls: Sequence[ActToolInfo], period: TimeRange) -> timedelta:
    moments = [_moment(call) for call in calls]
    return bucket_width(period.since or min(moments), period.until or max(moments))


def _bucket(call: ActToolInfo, width: timedelta) -> datetime:
    return _EPOCH + (_moment(call) - _EPOCH) // width * width


def _stats_of_tools(
    runs: Sequence[Records], period: TimeRange, name: str | None
) -> list[ToolStats]:
    wanted = ToolCallFilter(name=name, since=period.since, until=period.until)
    by_name: dict[str, list[ActToolInfo]] = {}
    for call in _calls(runs, wanted):
        by_name.setdefault(str(call.name), []).append(call)
    opened = _opened(runs)
    return [
        _stats(tool, calls, opened)
        for tool, calls in sorted(by_name.items(), key=lambda item: item[0].encode())
    ]


def tool_history(runs: Sequence[Records], name: str, period: TimeRange) -> ToolHistory:
    """Return the figures of one tool over time."""
    rows = _stats_of_tools(runs, period, name)
    if not rows:
        raise RecordNotFound("tool", name)
    [stats] = rows
    wanted = ToolCallFilter(name=name, since=period.since, until=period.until)
    calls = list(_calls(runs, wanted))
    width = _width(calls, period)
    opened = _opened(runs)
    buckets: dict[datetime, list[ActToolInfo]] = {}
    for call in calls:
        buckets.setdefault(_bucket(call, width), []).append(call)
    return ToolHistory(
        stats,
        int(width.total_seconds()),
        [CallBucket(at=at, **_figures(buckets[at], opened)) for at in sorted(buckets)],
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
        _named(
            sorted(
                (call for call in calls if call.shown_status == ABANDONED),
                key=lambda call: (_moment(call), call.tool_call_id),
            )
        ),
    )


Opened = dict[tuple[UUID, UUID | None], list[PlanExecutionRecord]]
"""Sub-plans by the run and the tool call that opened them."""


def _opened(runs: Iterable[Records]) -> Opened:
    opened: Opened = {}
    for records in runs:
        for plan in records[Kind.PLAN].values():
            opened.setdefault((plan.root_plan_id, plan.tool_call_id), []).append(plan)
    return opened


def _sub_plans(call: ActToolInfo, opened: Opened) -> list[PlanExecutionRecord]:
    return opened.get((call.root_plan_id, call.tool_call_id), [])


def _own_time(call: ActToolInfo, opened: Opened) -> float | None:
    """Return a call's duration in ms, without the time in which sub-plans of the call ran."""
    duration = _duration(call)
    if duration is None or duration <= 0:
        return duration
    assert call.started_at is not None
    assert call.finished_at is not None
    own, reached = call.finished_at - call.started_at, call.started_at
    times = [
        (plan.started_at, plan.finished_at or call.finished_at)
        for plan in _sub_plans(call, opened)
        if plan.started_at is not None
    ]
    for started_at, finished_at in sorted(times):
        begin, end = max(started_at, reached), min(finished_at, call.finished_at)
        if begin < end:
            own -= end - begin
            reached = end
    return own / timedelta(milliseconds=1)


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


def _stats(name: str, calls: list[ActToolInfo], opened: Opened) -> ToolStats:
    types = [call.tool_type for call in calls if call.tool_type is not None]
    return ToolStats(
        name=name,
        tool_type=max(types, key=str.encode, default=None),
        latest_at=max(map(_moment, calls)),
        sub_plans=sum(len(_sub_plans(call, opened)) for call in calls),
        **_figures(calls, opened),
    )


def _figures(calls: list[ActToolInfo], opened: Opened) -> dict[str, Any]:
    statuses = Counter(call.shown_status for call in calls)
    durations = sorted(d for call in calls for d in [_duration(call)] if d is not None)
    own_times = sorted(d for call in calls for d in [_own_time(call, opened)] if d is not None)
    ended = {
        "succeeded": statuses[Status.SUCCEEDED],
        "failed": statuses[Status.FAILED],
        "cancelled": statuses[Status.CANCELLED],
        "abandoned": statuses[ABANDONED],
    }
    return {
        "calls": len(calls),
        **ended,
        "running": len(calls) - sum(ended.values()),
        **{f"p{share}_ms": _percentile(durations, share) for share in (50, 95, 99)},
        **{f"own_p{share}_ms": _percentile(own_times, share) for share in (50, 95, 99)},
    }


def _percentile(ordered: list[float], share: int) -> float | None:
    """Return the smallest value that at least `share` percent of all values do not exceed.

    PostgreSQL's `percentile_disc` returns the same.
    """
    return ordered[ceil(len(ordered) * share / 100) - 1] if ordered else None


def _named(ordered: list[ActToolInfo]) -> list[ExampleCall]:
    return [
        ExampleCall(
            tool_call_id=call.tool_call_id,
            root_plan_id=call.root_plan_id,
            status=call.shown_status,
            started_at=call.started_at,
            duration_ms=_duration(call),
            reason=call.reason,
            error_type=call.error_type,
            error_message=None if call.error_message is None else preview(call.error_message),
        )
        for call in reversed(ordered[-LISTED:])
    ]
