"""Selects the records of lists in Python. `postgres/read/lists.py` does the same in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import inf
from typing import Any
from uuid import UUID

from tracer.lineage.tree import Payloads
from tracer.records.pages import Cursor, Page, SortedCursor
from tracer.records.record_classes import ActToolInfo, Kind, Run
from tracer.records.run_histogram import RunBin, RunHistogram, interval_for
from tracer.records.status import Status
from tracer.storage.memory.tree import Records, payload_fields
from tracer.storage.store_rules import (
    SEARCHED,
    SEARCHED_CHARACTERS,
    SEARCHED_OF_ROOT_PLAN,
    moment_of,
)
from tracer.store import RunFilter, RunOrder, ToolCallFilter, ToolCallPreview
from tracer.text import storable


def run_is_wanted(run: Run, records: Records, wanted: RunFilter) -> bool:
    """Return whether `run` matches a filter. `records` are all records of the run."""
    return (
        _has_status(run, wanted.status)
        and _is_between(run, wanted.since, wanted.until)
        and (
            wanted.agent is None
            or _has(records, (Kind.PLAN, Kind.STEP), "agent_name", storable(wanted.agent))
        )
        and (wanted.tool is None or _has(records, (Kind.TOOL_CALL,), "name", storable(wanted.tool)))
        and (wanted.session is None or run.session_id == storable(wanted.session))
        and (wanted.subject is None or run.subject == storable(wanted.subject))
        and (wanted.tag is None or storable(wanted.tag) in run.tags)
        and (wanted.service is None or run.service_name == storable(wanted.service))
        and (
            wanted.service_version is None
            or run.service_version == storable(wanted.service_version)
        )
        and (
            wanted.environment is None or run.deployment_environment == storable(wanted.environment)
        )
        and (wanted.q is None or _mentions(run, records, storable(wanted.q)))
    )


def tool_call_is_wanted(call: ActToolInfo, wanted: ToolCallFilter) -> bool:
    """Return whether `call` matches a filter."""
    return (
        _has_status(call, wanted.status)
        and _is_between(call, wanted.since, wanted.until)
        and (wanted.root_plan_id is None or call.root_plan_id == wanted.root_plan_id)
        and (wanted.name is None or call.name == storable(wanted.name))
        and (
            wanted.provider_call_id is None
            or call.provider_call_id == storable(wanted.provider_call_id)
        )
    )


def tool_call_preview(call: ActToolInfo) -> ToolCallPreview:
    """Return the preview of `call` that lists contain."""
    payloads = payload_fields(Kind.TOOL_CALL, call, Payloads.PREVIEW)
    return ToolCallPreview(**call.model_dump() | payloads)


def _has_status(record: Run | ActToolInfo, shown: str | None) -> bool:
    return shown is None or record.shown_status == shown


def _is_between(record: Run | ActToolInfo, since: datetime | None, until: datetime | None) -> bool:
    moment = moment_of(record)
    return (since is None or moment >= since) and (until is None or moment < until)


def _has(records: Records, kinds: tuple[Kind, ...], field: str, value: str) -> bool:
    return any(
        getattr(record, field) == value for kind in kinds for record in records[kind].values()
    )


def _mentions(run: Run, records: Records, text: str) -> bool:
    searched = chain(
        (
            getattr(record, field)
            for kind, fields in SEARCHED.items()
            for record in records[kind].values()
            for field in fields
        ),
        (
            (getattr(records[Kind.PLAN][run.root_plan_id], field) or "")[:SEARCHED_CHARACTERS]
            for field in SEARCHED_OF_ROOT_PLAN
            if run.root_plan_id in records[Kind.PLAN]
        ),
    )
    return any(text.lower() in (each or "").lower() for each in searched)


def page(records: list[Any], id_field: str, limit: int, cursor: str | None) -> Page[Any]:
    """Return the records that come after `cursor`, latest start first.

    Args:
        records: All matching records.
        id_field: The field that orders records of the same time.
        limit: The largest number of records.
        cursor: The cursor of the previous page.
    """
    places = {id(record): (moment_of(record), getattr(record, id_field)) for record in records}
    if cursor is not None:
        after = Cursor.decode(cursor)
        edge = (after.moment, after.record_id)
        records = [record for record in records if places[id(record)] < edge]
    records = sorted(records, key=lambda record: places[id(record)], reverse=True)
    if len(records) <= limit:
        return Page(records, None)
    return Page(records[:limit], Cursor(*places[id(records[limit - 1])]).encode())


def sorted_page(runs: Sequence[Run], order: RunOrder, limit: int, cursor: str | None) -> Page[Run]:
    """Return the runs that come after `cursor` in an order other than the latest first."""
    sign = -1 if order.is_descending else 1

    def place(value: float | None, run_id: UUID) -> tuple[float, int]:
        return (inf if value is None else sign * value, sign * run_id.int)

    places = [(place(_value(run, order), run.root_plan_id), run) for run in runs]
    if cursor is not None:
        after = SortedCursor.decode(cursor, order)
        edge = place(after.value, after.record_id)
        places = [each for each in places if each[0] > edge]
    found = [run for _, run in sorted(places, key=lambda each: each[0])]
    if len(found) <= limit:
        return Page(found, None)
    last = found[limit - 1]
    return Page(found[:limit], SortedCursor(order, _value(last, order), last.root_plan_id).encode())


def _value(run: Run, order: RunOrder) -> float | None:
    """Return the value by which an order sorts a run; None if the run has no such value."""
    match order.removeprefix("-"):
        case "start":
            return (moment_of(run) - _EPOCH) // timedelta(microseconds=1)
        case "duration":
            if run.started_at is None or run.finished_at is None:
                return None
            return (run.finished_at - run.started_at) // timedelta(microseconds=1)
        case "tokens":
            return run.input_tokens + run.output_tokens
        case "cost":
            cost = run.known_cost
            return None if cost is None else float(cost)
        case _:
            return run.tool_calls


def histogram(runs: Sequence[Run], wanted: RunFilter) -> RunHistogram:
    """Count `runs`, which match the filter `wanted`, in intervals of their start times."""
    starts = [(moment_of(run), run.status is Status.FAILED) for run in runs]
    moments = [at for at, _ in starts]
    since = wanted.since or min(moments, default=_EPOCH)
    until = wanted.until or max(moments, default=since)
    seconds = interval_for((until - since).total_seconds())
    length = timedelta(seconds=seconds)
    counted = Counter(_EPOCH + (at - _EPOCH) // length * length for at in moments)
    failed = Counter(_EPOCH + (at - _EPOCH) // length * length for at, has in starts if has)
    bins = [RunBin(start, counted[start], failed[start]) for start in sorted(counted)]
    return RunHistogram(len(runs), seconds, bins)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
