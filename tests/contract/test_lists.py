"""Lists of runs and tool calls: order, pages by cursor, filters and search."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.contract.moments import Moments
from tests.contract.stores import Store
from tests.sample_runs import START, sample_run
from tracer.errors import BadCursor, BadRequest
from tracer.records import Status, new_id
from tracer.records.events import ErrorInfo, ThoughtRecorded
from tracer.records.pages import RunOrder
from tracer.store import RunFilter, ToolCallFilter


async def roots(store: Store, wanted: RunFilter) -> list[UUID]:
    return [run.root_plan_id for run in (await store.reader.list_runs(wanted, 100, None)).items]


async def pages_of_runs(store: Store, wanted: RunFilter, limit: int) -> list[UUID]:
    """Return the runs of all pages."""
    found: list[UUID] = []
    cursor = None
    while True:
        page = await store.reader.list_runs(wanted, limit, cursor)
        found += [run.root_plan_id for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def calls(store: Store, wanted: ToolCallFilter) -> set[UUID]:
    page = await store.reader.list_tool_calls(wanted, 100, None)
    return {call.tool_call_id for call in page.items}


async def test_pages_contain_every_run_once_newest_first(store: Store) -> None:
    together = [Moments() for _ in range(4)]
    await store.record(*(run.plan_started() for run in together))
    later = Moments()
    await store.record(later.plan_started())
    expected = [later.root, *sorted((run.root for run in together), reverse=True)]
    seen: list[UUID] = []
    cursor = None
    while True:
        page = await store.reader.list_runs(RunFilter(), 2, cursor)
        seen += [run.root_plan_id for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        # Runs that arrive or change between pages do not disturb paging.
        await store.record(Moments().plan_started(), together[0].plan_finished())
    assert seen == expected


async def test_runs_are_sorted_by_start(store: Store) -> None:
    days = (2, 0, 3, 1)
    runs = [sample_run(sub_plans=0, start=START + timedelta(days=day)) for day in days]
    for run in runs:
        await store.record(*run.events)
    by_start = [run.root for _, run in sorted(zip(days, runs, strict=True), reverse=True)]

    assert await roots(store, RunFilter()) == by_start
    assert await roots(store, RunFilter(since=START)) == by_start
    within = RunFilter(until=START + timedelta(days=3))
    assert await pages_of_runs(store, within, 2) == by_start[1:]
    assert await pages_of_runs(store, within, 1) == by_start[1:]


async def test_tool_calls_are_sorted_by_start(store: Store) -> None:
    late, early, unknown = Moments(), Moments(), Moments()
    await store.record(late.call_started(at=9))
    await store.record(early.call_started(at=2))
    await store.record(unknown.call_finished())  # recorded now, years later
    page = await store.reader.list_tool_calls(ToolCallFilter(), 2, None)
    assert [call.tool_call_id for call in page.items] == [unknown.call, late.call]
    rest = await store.reader.list_tool_calls(ToolCallFilter(), 2, page.next_cursor)
    assert [call.tool_call_id for call in rest.items] == [early.call]


async def test_empty_list_has_one_page(store: Store) -> None:
    assert (await store.reader.list_runs(RunFilter(), 1, None)).items == []
    page = await store.reader.list_tool_calls(ToolCallFilter(), 1, None)
    assert (page.items, page.next_cursor) == ([], None)


async def test_last_page_has_no_cursor_even_if_it_is_full(store: Store) -> None:
    await store.record(Moments().plan_started(), Moments().plan_started())
    assert (await store.reader.list_runs(RunFilter(), 2, None)).next_cursor is None


async def test_invalid_cursor_is_rejected(store: Store) -> None:
    accepted = []
    for cursor in ("", "nonsense", "💥", "W10", "WyIyMDI2IiwiYSJd", "\0"):
        for name, read in (
            ("list_runs", store.reader.list_runs(RunFilter(), 2, cursor)),
            ("list_tool_calls", store.reader.list_tool_calls(ToolCallFilter(), 2, cursor)),
        ):
            try:
                await read
            except BadCursor:
                continue
            accepted.append(f"{name} accepted the cursor {cursor!r}")
    assert accepted == []


async def test_runs_are_filtered_by_status_agent_tool_and_time(store: Store) -> None:
    finished = sample_run()
    running = sample_run(sub_plans=0, finished=False, start=START + timedelta(hours=1))
    await store.record(*finished.events, *running.events)
    assert await roots(store, RunFilter(status="succeeded")) == [finished.root]
    assert await roots(store, RunFilter(status="running")) == [running.root]
    assert await roots(store, RunFilter(status="abandoned")) == []
    assert await roots(store, RunFilter(agent="pharmacist")) == [finished.root]
    assert await roots(store, RunFilter(agent="nobody")) == []
    assert await roots(store, RunFilter(tool="check")) == [finished.root]
    assert await roots(store, RunFilter(tool="measure", status="running")) == [running.root]
    assert await roots(store, RunFilter(since=START + timedelta(hours=1))) == [running.root]
    assert await roots(store, RunFilter(until=START + timedelta(hours=1))) == [finished.root]


async def test_search_finds_words_of_all_texts_in_any_order(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events)
    found = ["weekly REVIEW", "review weekly", "check 1", "meas", "CUFF is loose", "pharmacist"]
    not_found = ["eekly", '"review weekly"', "cuff loosely", "review -cuff", "血压"]
    matching = [q for q in (*found, *not_found) if await roots(store, RunFilter(q=q)) == [run.root]]
    assert matching == found


async def test_search_without_a_word_is_rejected(store: Store) -> None:
    for q in ("", "%", "-word", '""'):
        with pytest.raises(BadRequest):
            await roots(store, RunFilter(q=q))


async def test_tool_calls_of_all_runs_are_filtered(store: Store) -> None:
    one, other = sample_run(), sample_run(sub_plans=1, finished=False)
    await store.record(*one.events, *other.events)
    assert await calls(store, ToolCallFilter(name="measure")) == {
        *(one.failed_call, other.failed_call)
    }
    assert await calls(store, ToolCallFilter(status="running")) == set(other.opening_calls)
    both = ToolCallFilter(root_plan_id=one.root, provider_call_id="call_0")
    assert await calls(store, both) == {one.failed_call, *one.opening_calls}
    assert await calls(store, ToolCallFilter(name="Measure")) == set()
    assert await calls(store, ToolCallFilter(since=START + timedelta(days=1))) == set()
    assert len(await calls(store, ToolCallFilter(until=START + timedelta(days=1)))) == 5


async def test_list_truncates_long_strings_and_contains_their_size(store: Store) -> None:
    run, short, long = Moments(), "短", "字" * 1000
    error = ErrorInfo(type="E", message=long, stack=long)
    await store.record(
        run.call_started(name=long, arguments=short, effective_arguments=long),
        run.call_finished(status=Status.FAILED, result=long, state_changes=[long], error=error),
    )
    [call] = (await store.reader.list_tool_calls(ToolCallFilter(), 10, None)).items
    start = "字" * 682
    assert (call.arguments, call.arguments_bytes, call.arguments_truncated) == (short, 3, False)
    assert (call.result, call.result_bytes, call.result_truncated) == (start, 3000, True)
    assert (call.effective_arguments, call.effective_arguments_bytes) == (start, 3000)
    assert (call.state_changes_bytes, call.state_changes_truncated) == (6004, True)
    assert (call.name, call.error_message, call.error_stack) == (long, start, start)


async def test_filter_distinguishes_long_names_that_differ_at_the_end(store: Store) -> None:
    run, other = Moments(), Moments()
    name = "工具" * 100_000
    await store.record(
        run.call_started(name=name + "1", provider_call_id=name),
        other.call_started(name=name + "2"),
    )
    assert await calls(store, ToolCallFilter(name=name + "1")) == {run.call}
    assert await calls(store, ToolCallFilter(provider_call_id=name)) == {run.call}
    assert await roots(store, RunFilter(tool=name + "2")) == [other.root]


async def test_filter_by_an_unknown_status_is_a_bad_request(store: Store) -> None:
    with pytest.raises(BadRequest, match="succeeded"):
        await store.reader.list_runs(RunFilter(status="done"), 10, None)
    with pytest.raises(BadRequest):
        await store.reader.list_tool_calls(ToolCallFilter(status="done"), 10, None)


async def test_pages_of_tool_calls_contain_every_call_once(store: Store) -> None:
    run = Moments()
    ids = [new_id() for _ in range(7)]
    await store.record(*(run.call_started(tool_call_id=id_) for id_ in ids))
    seen: list[UUID] = []
    cursor = None
    for _ in range(4):
        page = await store.reader.list_tool_calls(ToolCallFilter(), 2, cursor)
        seen += [call.tool_call_id for call in page.items]
        cursor = page.next_cursor
    assert seen == sorted(ids, reverse=True)
    assert cursor is None


def _thought(run: Moments, **used: Any) -> ThoughtRecorded:
    return ThoughtRecorded(
        at=START,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        think_act_id=run.think_act,
        status=Status.SUCCEEDED,
        **used,
    )


async def _values_to_sort(store: Store) -> dict[str, UUID]:
    """Record runs of different lengths, tokens and costs, by name."""
    short, long, unpriced, still_open = (Moments() for _ in range(4))
    await store.record(
        short.plan_started(at=0),
        _thought(short, input_tokens=5, output_tokens=5, cost_usd="0.5"),
        short.plan_finished(at=10),
        long.plan_started(at=1),
        _thought(long, input_tokens=50, output_tokens=5, cost_usd="0.25"),
        long.call_started(),
        long.plan_finished(at=300, status=Status.FAILED),
        unpriced.plan_started(at=2),
        _thought(unpriced, input_tokens=7, output_tokens=1),
        unpriced.plan_finished(at=22),
        still_open.plan_started(at=3),
    )
    runs = {"short": short, "long": long, "unpriced": unpriced, "open": still_open}
    return {name: run.root for name, run in runs.items()}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (RunOrder.EARLIEST, ["short", "long", "unpriced", "open"]),
        (RunOrder.LONGEST, ["long", "unpriced", "short", "open"]),
        (RunOrder.SHORTEST, ["short", "unpriced", "long", "open"]),
        (RunOrder.MOST_TOKENS, ["long", "short", "unpriced", "open"]),
        (RunOrder.FEWEST_TOKENS, ["open", "unpriced", "short", "long"]),
        (RunOrder.MOST_EXPENSIVE, ["short", "long", "open", "unpriced"]),
        (RunOrder.CHEAPEST, ["open", "long", "short", "unpriced"]),
    ],
)
async def test_sorted_pages_contain_every_run_once_and_unknown_values_last(
    store: Store, order: RunOrder, expected: list[str]
) -> None:
    named = {root: name for name, root in (await _values_to_sort(store)).items()}
    for limit in (1, 3, 10):
        seen: list[str] = []
        cursor = None
        while not seen or cursor is not None:
            page = await store.reader.list_runs(RunFilter(), limit, cursor, order)
            seen += [named[run.root_plan_id] for run in page.items]
            cursor = page.next_cursor
        assert seen == expected


async def test_runs_with_equal_sort_values_are_sorted_by_id_in_the_same_direction(
    store: Store,
) -> None:
    runs = [Moments() for _ in range(5)]
    await store.record(*(run.plan_started() for run in runs))
    for order in (RunOrder.MOST_TOKENS, RunOrder.LONGEST, RunOrder.SHORTEST):
        seen: list[UUID] = []
        cursor = None
        while not seen or cursor is not None:
            page = await store.reader.list_runs(RunFilter(), 2, cursor, order)
            seen += [run.root_plan_id for run in page.items]
            cursor = page.next_cursor
        assert seen == sorted((run.root for run in runs), reverse=order.is_descending)


async def test_sorted_list_of_runs_can_be_filtered(store: Store) -> None:
    roots_by_name = await _values_to_sort(store)
    failed = RunFilter(status="failed")
    page = await store.reader.list_runs(failed, 9, None, RunOrder.MOST_TOKENS)
    assert [run.root_plan_id for run in page.items] == [roots_by_name["long"]]


async def test_cursor_of_another_order_is_rejected(store: Store) -> None:
    await _values_to_sort(store)
    longest = await store.reader.list_runs(RunFilter(), 1, None, RunOrder.LONGEST)
    latest = await store.reader.list_runs(RunFilter(), 1, None)
    for cursor, order in (
        (longest.next_cursor, RunOrder.SHORTEST),
        (longest.next_cursor, RunOrder.LATEST),
        (latest.next_cursor, RunOrder.LONGEST),
        ("WyItZHVyYXRpb24iLHRydWUsImEiXQ", RunOrder.LONGEST),
    ):
        with pytest.raises(BadCursor):
            await store.reader.list_runs(RunFilter(), 1, cursor, order)


async def test_histogram_counts_runs_and_failures_of_each_interval(store: Store) -> None:
    day = timedelta(days=1)
    runs = [
        sample_run(sub_plans=0, start=START + days * day, finished=False) for days in (0, 0, 3, 20)
    ]
    for run in runs:
        await store.record(*run.events)
    failed = Moments()
    await store.record(failed.plan_started(at=60), failed.plan_finished(status=Status.FAILED))
    counted = await store.reader.count_runs(RunFilter())
    assert (counted.count, counted.counted_back_to) == (5, None)
    assert counted.interval_seconds == 12 * 3600
    assert [(each.runs, each.failed) for each in counted.bins] == [(3, 1), (1, 0), (1, 0)]
    assert all(each.start.timestamp() % counted.interval_seconds == 0 for each in counted.bins)

    within = RunFilter(since=START, until=START + timedelta(minutes=30))
    narrow = await store.reader.count_runs(within)
    assert (narrow.count, narrow.interval_seconds) == (3, 30)
    of_failures = await store.reader.count_runs(RunFilter(status="failed"))
    assert [(each.runs, each.failed) for each in of_failures.bins] == [(1, 1)]
    searched = await store.reader.count_runs(RunFilter(tool="measure"))
    assert searched.count == 4


async def test_histogram_of_no_runs_is_empty(store: Store) -> None:
    empty = await store.reader.count_runs(RunFilter())
    assert (empty.count, empty.bins, empty.interval_seconds) == (0, [], 1)
