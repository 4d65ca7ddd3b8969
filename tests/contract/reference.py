"""The content of lists and statistics, computed in Python from events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, inf
from typing import Any

from tests.contract.stores import clock
from tests.recordings import record_from, run_from
from tracer.records import ABANDONED, Kind, Run, Status
from tracer.records.events import Event
from tracer.records.merge import merge_records, partial_records
from tracer.records.pages import RunOrder, TimeRange
from tracer.records.pages import moment_of as moment
from tracer.records.record_classes import RECORDS, ActToolInfo
from tracer.store import RunFilter, ToolCallFilter
from tracer.text import storable

EPOCH, MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


class Reference:
    """The records of events, and the selections from them."""

    def __init__(self, batches: Sequence[Sequence[Event]]) -> None:
        """Merge the events of all batches. The clock steps once for each batch."""
        events, now = [event for batch in batches for event in batch], clock()
        recorded: dict[Any, datetime] = {}
        for batch, at in ((batch, now()) for batch in batches):
            for event in batch:
                recorded.setdefault((Kind.RUN, (event.root_plan_id, event.root_plan_id)), at)
            for kind, key, _ in partial_records(batch):
                recorded.setdefault((kind, key), at)
        merged = merge_records(partial_records(events))
        self.records: dict[Kind, list[Any]] = {
            kind: [
                record_from(kind, key, {**fields, "recorded_at": recorded[kind, key]})
                for key, fields in merged[kind].items()
            ]
            for kind in RECORDS
        }
        self.runs: list[Run] = [
            run_from(merged, run_id, recorded[Kind.RUN, (run_id, run_id)])
            for run_id in {event.root_plan_id for event in events}
        ]

    def list_runs(self, wanted: RunFilter, order: RunOrder) -> list[Run]:
        """Return the runs that match a filter, in an order."""
        sign = -1 if order.is_descending else 1

        def sort_key(run: Run) -> tuple[float, int]:
            value = _sort_value(run, order)
            return inf if value is None else sign * value, sign * run.root_plan_id.int

        return sorted((run for run in self.runs if self._matches(run, wanted)), key=sort_key)

    def _matches(self, run: Run, wanted: RunFilter) -> bool:
        records = [
            (k, r) for k in RECORDS for r in self.records[k] if r.root_plan_id == run.root_plan_id
        ]
        values: list[tuple[str | None, Iterable[str | None]]] = [
            (wanted.status, [run.shown_status]),
            (wanted.agent, [getattr(record, "agent_name", None) for _, record in records]),
            (wanted.tool, [r.name for kind, r in records if kind is Kind.TOOL_CALL]),
            (wanted.session, [run.session_id]),
            (wanted.subject, [run.subject]),
            (wanted.tag, run.tags),
            (wanted.service, [run.service_name]),
            (wanted.service_version, [run.service_version]),
            (wanted.environment, [run.deployment_environment]),
        ]
        cost = _sort_value(run, RunOrder.CHEAPEST)
        if wanted.min_cost is not None and (cost is None or cost < wanted.min_cost):
            return False
        return _is_within(run, wanted) and all(
            value is None or storable(value) in allowed for value, allowed in values
        )

    def list_tool_calls(self, wanted: ToolCallFilter) -> list[ActToolInfo]:
        """Return the tool calls that match a filter, the latest first."""
        exact = {n: getattr(wanted, n) for n in ("name", "root_plan_id", "provider_call_id")}
        calls: list[ActToolInfo] = [
            call
            for call in self.records[Kind.TOOL_CALL]
            if _is_within(call, wanted) and wanted.status in (None, call.shown_status)
            if all(value in (None, getattr(call, name)) for name, value in exact.items())
        ]
        return sorted(calls, key=lambda call: (moment(call), call.tool_call_id), reverse=True)

    def tool_stats(self, within: TimeRange) -> dict[str, dict[str, Any]]:
        """Return the figures of each tool."""
        calls = self.list_tool_calls(ToolCallFilter(since=within.since, until=within.until))
        names = {call.name for call in calls if call.name is not None}
        return {name: self._figures([c for c in calls if c.name == name]) for name in names}

    def _figures(self, calls: list[ActToolInfo]) -> dict[str, Any]:
        counts = Counter(call.shown_status for call in calls)
        figures: dict[str, Any] = {"calls": len(calls)}
        for status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, ABANDONED):
            figures[str(status)] = counts.pop(status, 0)
        figures["running"] = counts.total()
        figures["failed_below"] = sum(
            call.shown_status == Status.FAILED and self._opened_failing_plan(call) for call in calls
        )
        times = [
            self._times(c, c.started_at, c.finished_at)
            for c in calls
            if c.started_at and c.finished_at
        ]
        for share in (50, 95, 99):
            for which, name in enumerate((f"p{share}_ms", f"own_p{share}_ms")):
                durations = sorted(each[which] / MS for each in times)
                index = ceil(len(times) * share / 100) - 1
                figures[name] = durations[index] if durations else None
        return figures

    def _opened_failing_plan(self, call: ActToolInfo) -> bool:
        key = (call.root_plan_id, call.tool_call_id)
        return any(
            (plan.root_plan_id, plan.tool_call_id) == key and plan.shown_status == Status.FAILED
            for plan in self.records[Kind.PLAN]
        )

    def _times(
        self, call: ActToolInfo, start: datetime, end: datetime
    ) -> tuple[timedelta, timedelta]:
        """Return a call's duration, with and without the time in which its sub-plans ran."""
        own, reached = end - start, start
        key = (call.root_plan_id, call.tool_call_id)
        plans = [p for p in self.records[Kind.PLAN] if (p.root_plan_id, p.tool_call_id) == key]
        for begun, finished in sorted(
            (p.started_at, p.finished_at or end) for p in plans if p.started_at
        ):
            begin, finish = max(begun, reached), min(finished, end)
            if begin < finish:
                own, reached = own - (finish - begin), finish
        return end - start, own


def _is_within(record: Run | ActToolInfo, wanted: RunFilter | ToolCallFilter) -> bool:
    at = moment(record)
    return (wanted.since or at) <= at and (wanted.until is None or at < wanted.until)


def _sort_value(run: Run, order: RunOrder) -> float | None:
    started, finished = run.started_at, run.finished_at
    values: dict[str, float | None] = {
        "start": (moment(run) - EPOCH) / MS,
        "duration": (finished - started) / MS if started and finished else None,
        "tokens": run.input_tokens + run.output_tokens,
        "cost": None if run.known_cost is None else float(run.known_cost),
        "toolCalls": run.tool_calls,
    }
    return values[order.removeprefix("-")]
