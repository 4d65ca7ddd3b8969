"""Statistics of tool calls: counts, percentiles and buckets."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings

from tests.contract.generated_runs import START as TOLD
from tests.contract.generated_runs import Batches, retold_forests
from tests.contract.moments import START, Moments
from tests.contract.reference import Reference
from tests.contract.stores import NewStore, Store
from tests.profiles import scaled
from tracer.errors import RecordNotFound
from tracer.records import Reason, Status, new_id
from tracer.records.events import ErrorInfo, Event
from tracer.records.pages import (
    CallCounts,
    CallFigures,
    ExampleCall,
    TimeRange,
    ToolStats,
    bucket_width,
)
from tracer.text import escape

EVER = TimeRange()
AT_TOLD = TOLD.replace(microsecond=3000)


async def record_call(
    store: Store,
    name: str = "measure",
    seconds: float | None = 1,
    status: Any = Status.SUCCEEDED,
    at: datetime = START,
    **said: Any,
) -> UUID:
    """Record a call, and return its id; without `seconds` it goes on."""
    run = Moments()
    ids: dict[str, Any] = {"tool_call_id": run.call}
    events: list[Event] = [
        run.call_started(**ids, name=name).model_copy(update={"at": at}),
    ]
    if seconds is not None:
        ended = run.call_finished(status=status, **ids, **said)
        events.append(ended.model_copy(update={"at": at + timedelta(seconds=seconds)}))
    await store.record(*events)
    return run.call


async def stats(store: Store, name: str = "measure", within: TimeRange = EVER) -> ToolStats:
    [found] = (await store.reader.read_tool_stats(within, name)).items
    return found


@settings(max_examples=scaled(25))
@given(forest=retold_forests())
async def test_statistics_and_histories_count_the_matching_calls(
    new_postgres_store: NewStore, forest: tuple[list[Event], Batches]
) -> None:
    store, expected = new_postgres_store(), Reference(forest[1])
    for batch in forest[1]:
        await store.record(*batch)
    for within in (EVER, TimeRange(since=AT_TOLD), TimeRange(until=AT_TOLD)):
        found = (await store.reader.read_tool_stats(within)).items
        assert {tool.name: figures(tool) for tool in found} == expected.tool_stats(within)
        for tool in found:
            history = await store.reader.read_tool_history(tool.name, within)
            assert history.stats == tool
            assert sum(bucket.calls for bucket in history.buckets) == tool.calls


def figures(found: CallFigures) -> dict[str, Any]:
    return {each.name: getattr(found, each.name) for each in fields(CallFigures)}


async def test_statistics_count_calls_of_each_status_separately(store: Store) -> None:
    for status in (Status.SUCCEEDED, Status.SUCCEEDED, Status.SUCCEEDED, Status.FAILED):
        await record_call(store, status=status)
    await record_call(store, status=Status.CANCELLED)
    await record_call(store, seconds=None)
    await record_call(store, name="weigh")

    found = await stats(store)

    assert (found.calls, found.succeeded, found.failed, found.cancelled) == (6, 3, 1, 1)
    assert (found.running, found.abandoned, found.failure_rate) == (1, 0, 0.25)
    every = await store.reader.read_tool_stats(EVER)
    assert [each.name for each in every.items] == ["measure", "weigh"]


async def test_tool_with_only_running_calls_has_no_failure_rate_or_percentiles(
    store: Store,
) -> None:
    await record_call(store, seconds=None)

    found = await stats(store)

    assert (found.failure_rate, found.p50_ms, found.p95_ms, found.p99_ms) == (None,) * 4


async def test_percentiles_are_durations_of_actual_calls(store: Store) -> None:
    events: list[Event] = []
    for seconds in range(1, 101):
        run = Moments()
        events += [run.call_started(at=0), run.call_finished(at=seconds)]
    await store.record(*events)

    found = await stats(store)

    assert (found.p50_ms, found.p95_ms, found.p99_ms) == (50_000, 95_000, 99_000)


async def test_statistics_count_sub_plans_for_the_tool_that_opened_them(store: Store) -> None:
    run = Moments()
    await store.record(
        run.plan_started(),
        run.call_started(name="check", tool_type="SUBPLAN"),
        run.sub_plan_started(new_id(), run.call),
        run.sub_plan_started(new_id(), run.call, position=1),
    )

    found = await stats(store, "check")

    assert (found.calls, found.sub_plans, found.tool_type) == (1, 2, "SUBPLAN")


async def test_sub_plans_count_in_the_time_range_of_their_opening_call(store: Store) -> None:
    run = Moments()
    await store.record(
        run.call_started(name="check", at=5),
        run.sub_plan_started(new_id(), run.call, at=3),  # by another clock
        run.sub_plan_started(new_id(), run.call, at=6, position=1),
    )

    assert (await stats(store, "check")).sub_plans == 2
    since = TimeRange(START + timedelta(seconds=4), START + timedelta(seconds=6))
    assert (await stats(store, "check", since)).sub_plans == 2


async def test_own_time_excludes_the_time_of_parallel_sub_plans(store: Store) -> None:
    run = Moments()
    times = [(2, 5), (3, 6), (8, 20), (-4, 1)]  # by clocks that may differ
    events: list[Event] = [run.call_started(at=0), run.call_finished(at=10)]
    for position, (start, end) in enumerate(times):
        plan = new_id()
        events.append(run.sub_plan_started(plan, run.call, at=start, position=position))
        events.append(run.plan_finished(at=end, plan=plan))
    await store.record(*events)

    found = await stats(store)

    # 0 to 1, 2 to 6 and 8 to 10 belong to sub-plans.
    assert (found.p50_ms, found.own_p50_ms) == (10_000, 3_000)

    await store.record(run.sub_plan_started(new_id(), run.call, at=7, position=9))
    assert (await stats(store)).own_p99_ms == 2_000  # it is still running


async def test_own_time_of_calls_without_sub_plans_is_their_duration(store: Store) -> None:
    for seconds in (1, 2, 3):
        await record_call(store, seconds=seconds)

    found = await stats(store)

    assert (found.own_p50_ms, found.own_p95_ms, found.own_p99_ms) == (
        (found.p50_ms, found.p95_ms, found.p99_ms)
    )


async def test_history_counts_the_calls_of_every_tool_over_time(store: Store) -> None:
    for hours, status in [(0, Status.FAILED), (0.5, Status.SUCCEEDED), (30, Status.SUCCEEDED)]:
        await record_call(store, at=START + timedelta(hours=hours), status=status)
    await record_call(store, name="weigh")

    page = await store.reader.read_tool_stats(EVER)

    later = START + timedelta(hours=30)
    assert page.bucket_seconds == 3600
    assert page.counts == {
        "measure": [CallCounts(START, 2, 1), CallCounts(later, 1, 0)],
        "weigh": [CallCounts(START, 1, 0)],
    }


async def test_statistics_count_only_calls_that_start_within_the_time_range(store: Store) -> None:
    for day in range(4):
        await record_call(store, at=START + timedelta(days=day))

    within = TimeRange(START + timedelta(days=1), START + timedelta(days=3))
    found = await stats(store, within=within)

    assert (found.calls, found.latest_at) == (2, START + timedelta(days=2))
    assert (await store.reader.read_tool_stats(TimeRange(until=START))).items == []
    with pytest.raises(RecordNotFound):
        await store.reader.read_tool_history("measure", TimeRange(until=START))


async def test_calls_of_a_deleted_run_are_not_counted(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(), run.call_started(name="measure"))
    await store.writer.delete_run(run.root)

    assert (await store.reader.read_tool_stats(EVER)).items == []


async def test_tool_history_omits_empty_buckets(store: Store) -> None:
    for hours in (0, 0.5, 30):
        await record_call(store, at=START + timedelta(hours=hours), seconds=hours + 1)

    history = await store.reader.read_tool_history("measure", EVER)

    assert history.bucket_seconds == 3600
    assert [(bucket.at, bucket.calls, bucket.p50_ms) for bucket in history.buckets] == [
        (START, 2, 1000.0),
        (START + timedelta(hours=30), 1, 31_000.0),
    ]
    assert (await store.reader.read_tool_history("measure", TimeRange(START))).buckets == (
        history.buckets
    )


async def test_history_lists_the_slowest_calls_and_the_latest_failed_calls(store: Store) -> None:
    failure: dict[str, Any] = {"status": Status.FAILED, "reason": Reason.TOOL_ERROR}
    error = ErrorInfo(type="ValueError", message="x" * 5000)
    slow = [await record_call(store, seconds=seconds) for seconds in range(20, 35)]
    failed = [
        await record_call(store, at=START + timedelta(days=day), error=error, **failure)
        for day in range(12)
    ]
    await record_call(store, seconds=None)

    history = await store.reader.read_tool_history("measure", EVER)

    assert [call.tool_call_id for call in history.slowest] == slow[:4:-1]
    assert [call.tool_call_id for call in history.latest_failed] == failed[:1:-1]
    latest = history.latest_failed[0]
    call = (await store.reader.read_tool_call(failed[-1])).call
    assert latest == ExampleCall(
        tool_call_id=call.tool_call_id,
        root_plan_id=call.root_plan_id,
        status="failed",
        started_at=call.started_at,
        duration_ms=1000.0,
        reason="tool_error",
        error_type="ValueError",
        error_message="x" * 2048,
    )


async def test_statistics_are_found_for_any_text_as_tool_name(store: Store) -> None:
    failures = []
    for name in ("", "a/b", "\0", "é", "%", "x" * 3000):
        await record_call(store, name=name)
        found = (await store.reader.read_tool_history(escape(name), EVER)).stats
        if (found.name, found.calls) != (escape(name), 1):
            failures.append(f"{name[:9]!r}: found {found.calls} calls of {found.name[:9]!r}")
    assert failures == []


def test_any_time_range_has_at_most_60_buckets_of_whole_seconds() -> None:
    first = datetime(1900, 1, 1, tzinfo=UTC)
    failures = []
    for days in (0, 1e-9, 1e-5, 0.001, 0.5, 1, 7, 100, 1000, 365 * 20, 365 * 7000):
        span = timedelta(days=days)
        width = bucket_width(first, first + span)
        if span / width > 60 or width < timedelta(seconds=1) or width % timedelta(seconds=1):
            failures.append(f"{days} days: buckets of {width}")
    assert failures == []
