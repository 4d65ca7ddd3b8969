"""Runs that continue each other are one piece of work: one item of the list, and one tree."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.contract.moments import Moments
from tests.contract.stores import Store
from tests.trees import plain
from tracer.errors import RecordNotFound, RunNotActive
from tracer.lineage import Payloads, build_tree
from tracer.records import Status
from tracer.records.events import ErrorInfo, Event
from tracer.records.pages import RunPreview
from tracer.store import RunFilter

SESSION = "s"


def first_run(**fields: Any) -> tuple[Moments, list[Event]]:
    """Return a run whose call is continued later."""
    run = Moments()
    events: list[Event] = [
        run.plan_started(session_id=SESSION, user_request="Book it.", **fields),
        run.step_started(),
        run.call_started(),
        run.call_finished(),
        run.step_finished(),
        run.plan_finished(summary="Asked."),
    ]
    return run, events


def later_run(of: Moments, at: int = 20, **fields: Any) -> tuple[Moments, list[Event]]:
    """Return a run that continues the call of another one."""
    run = Moments()
    events: list[Event] = [
        run.plan_started(at, session_id=SESSION, follows_calls=(of.call,), **fields),
        run.step_started(at + 1),
        run.call_started(at + 2, name="pay"),
    ]
    return run, events


async def items(store: Store, **wanted: Any) -> list[RunPreview]:
    page = await store.reader.list_runs(RunFilter(**wanted), 10, None)
    return page.items


async def ids(store: Store, **wanted: Any) -> list[UUID]:
    return [run.root_plan_id for run in await items(store, **wanted)]


async def test_list_has_one_item_for_a_piece_of_work(store: Store) -> None:
    first, events = first_run()
    later, more = later_run(first)
    await store.record(*events, *more, later.plan_finished(30, summary="Booked."))
    await store.link()

    [run] = await items(store)

    assert (run.root_plan_id, run.parts, run.status) == (first.root, 2, Status.SUCCEEDED)
    assert (run.request, run.answer, run.tool_calls) == ("Book it.", "Booked.", 2)
    assert run.finished_at == later.plan_finished(30).at
    assert run.own is not None
    assert (run.own.answer, run.own.tool_calls, run.own.status) == ("Asked.", 1, "succeeded")
    assert await store.reader.read_run(first.root) == run
    assert await ids(store, all_parts=True) == [later.root, first.root]
    part = await store.reader.read_run(later.root)
    assert (part.parts, part.head_id, part.own, part.tool_calls) == (1, first.root, None, 1)


async def test_status_of_the_list_is_that_of_the_whole(store: Store) -> None:
    first, events = first_run()
    later, more = later_run(first)
    await store.record(*events, *more)
    await store.link()
    assert await ids(store, status="running") == [first.root]
    assert await ids(store, status="succeeded") == []
    assert await ids(store, status="running", all_parts=True) == [later.root]

    failed = later.plan_finished(30, Status.FAILED, error=ErrorInfo(type="E", message="No."))
    await store.record(failed)
    await store.link()

    [run] = await items(store, status="failed")
    assert (run.root_plan_id, run.failures, run.handled_failures) == (first.root, 1, 0)
    assert run.failure is not None
    assert run.failure.error_message == "No."
    assert await ids(store, status="running") == []
    histogram = await store.reader.count_runs(RunFilter())
    assert [(each.runs, each.failed) for each in histogram.bins] == [(1, 1)]


async def test_filters_find_a_piece_of_work_by_any_of_its_runs(store: Store) -> None:
    first, events = first_run()
    _, more = later_run(first, tags=("t",), agent_name="payer", service_name="till")
    await store.record(*events, *more)
    await store.link()

    for wanted in ({"tool": "pay"}, {"tag": "t"}, {"agent": "payer"}, {"service": "till"}):
        assert await ids(store, **wanted) == [first.root], wanted
    assert await ids(store, tool="refund") == []


async def test_tree_of_the_first_run_contains_the_runs_that_continue_it(store: Store) -> None:
    first, events = first_run()
    later, more = later_run(first)
    last = Moments()
    await store.record(*events, *more)
    await store.record(last.plan_started(40, follows_runs=(later.root,)))
    await store.link()

    rows = await store.reader.read_tree(first.root, Payloads.NONE)
    tree = plain(build_tree(rows, str(first.root)))

    [step] = tree["agentExecutions"]
    [call] = step["toolCalls"]
    [part] = call["subPlans"]
    assert part["planId"] == str(later.root)
    assert part["continues"]["rootPlanId"] == str(first.root)
    assert tree["cumulative"]["toolCalls"] == 2
    [below] = part["agentExecutions"][0]["subPlans"]
    assert below["planId"] == str(last.root)
    own = await store.reader.read_tree(first.root, Payloads.NONE, all_parts=False)
    assert [plan.plan_id for plan in own.plans] == [str(first.root)]


async def test_change_of_a_later_run_resets_readers_of_the_first(store: Store) -> None:
    first, events = first_run()
    later, more = later_run(first)
    await store.record(*events, *more)
    await store.link()
    before = (await store.reader.read_run(first.root)).revision
    assert not (await store.reader.read_changes(first.root, before, 10)).is_reset

    await store.record(later.call_finished(25))
    await store.link()

    changes = await store.reader.read_changes(first.root, before, 10)
    assert changes.is_reset
    assert changes.revision > before


async def test_deletion_of_the_first_run_deletes_the_others(store: Store) -> None:
    for all_parts in (True, False):
        first, events = first_run()
        later, more = later_run(first)
        await store.record(*events, *more)
        await store.link()

        await store.writer.delete_run(first.root, all_parts=all_parts)
        await store.link()

        if all_parts:
            with pytest.raises(RecordNotFound):
                await store.reader.read_run(later.root)
        else:
            assert (await store.reader.read_run(later.root)).head_id is None


async def test_cancellation_of_the_first_run_reaches_open_runs_that_continue_it(
    store: Store,
) -> None:
    first, events = first_run()
    later, more = later_run(first)
    await store.record(*events, *more)
    await store.link()

    await store.writer.request_cancel(first.root)

    assert (await store.reader.read_run(later.root)).cancel_requested_at is not None
    await store.record(later.plan_finished(30))
    with pytest.raises(RunNotActive):
        await store.writer.request_cancel(first.root)
