"""Runs that continue each other are one piece of work: one item of the list, and one tree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.citus_databases import on_one_postgres
from tests.contract.moments import Moments
from tests.contract.stores import Store
from tests.trees import plain
from tracer import questions
from tracer.errors import RecordNotFound, RunNotActive
from tracer.lineage import Payloads, build_tree
from tracer.questions import Outline, Why
from tracer.records import Status, new_id
from tracer.records.events import ErrorInfo, Event, StepStarted, ThoughtRecorded
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


async def test_parts_inside_their_call_give_figures_but_neither_status_nor_answer(
    store: Store,
) -> None:
    first, events = first_run()
    error = ErrorInfo(type="E", message="No.")
    answering, of_answering = later_run(first, 20)
    silent, of_silent = later_run(first, 40)
    inside, of_inside = later_run(silent, 42)  # before the call that it continues has ended
    await store.record(*events, *of_answering, *of_silent, *of_inside)
    await store.record(answering.plan_finished(30, summary="Booked."))
    await store.link()
    [run] = await items(store)
    assert (run.parts, run.status, run.answer) == (4, Status.RUNNING, "Booked.")
    assert run.open_call is not None
    assert run.open_call.id == silent.call

    await store.record(inside.plan_finished(90, Status.FAILED, summary="Lost.", error=error))
    await store.record(silent.plan_finished(60, Status.CANCELLED, reason="stopped"))
    await store.link()

    [run] = await items(store)
    assert (run.status, run.reason, run.answer) == (Status.CANCELLED, "stopped", "Booked.")
    assert (run.tool_calls, run.failures, run.failure) == (4, 1, None)
    assert run.finished_at == inside.plan_finished(90).at
    assert run.own is not None
    assert (run.own.failures, run.own.status) == (0, "succeeded")


@on_one_postgres
async def test_filters_find_a_piece_of_work_by_any_of_its_runs(store: Store) -> None:
    first, events = first_run()
    _, more = later_run(first, tags=("t",), agent_name="payer", service_name="till")
    await store.record(*events, *more)
    await store.link()

    for wanted in ({"tool": "pay"}, {"tag": "t"}, {"agent": "payer"}, {"service": "till"}):
        assert await ids(store, **wanted) == [first.root], wanted
    assert await ids(store, tool="refund") == []


async def answers_about(store: Store, run: Moments) -> tuple[RunPreview, list[Outline | Why]]:
    """Return the item of the list, and the answers to `show` and `why`."""
    [item] = await items(store)
    rows = await store.reader.read_tree(run.root, Payloads.PREVIEW)
    tree = build_tree(rows, str(run.root))
    why = questions.explain(questions.target_of(tree), 1_000)
    return item, [questions.outline(tree, 1_000), why]


async def test_answers_show_the_status_reason_and_duration_of_the_whole(store: Store) -> None:
    first, events = first_run()
    later, more = later_run(first)
    inside, of_inside = later_run(later, 22)  # before the call that it continues has ended
    endings: dict[str, list[Event]] = {
        "running": [*events, *more],
        "failed": [
            later.call_finished(25, Status.FAILED, error=ErrorInfo(type="E", message="No.")),
            later.step_finished(at=28, status=Status.FAILED),
            later.plan_finished(30, Status.FAILED, reason="round_limit"),
        ],
        "failed, too": [*of_inside, inside.plan_finished(40, Status.CANCELLED, reason="stopped")],
    }

    for status, written in endings.items():
        await store.record(*written)
        await store.link()
        item, answers = await answers_about(store, first)
        taken = item.finished_at and item.started_at and item.finished_at - item.started_at
        assert str(item.status) == status.removesuffix(", too")
        for answer in answers:
            assert (answer.status, answer.reason) == (item.status, item.reason)
            assert answer.duration_ms == (taken and taken.total_seconds() * 1000)
        assert isinstance(answers[1], Why)
        assert answers[1].origin.id == str(later.call)
    [preview] = await items(store)
    assert preview.parts == 3


@on_one_postgres
async def test_least_cost_is_that_of_the_whole(store: Store) -> None:
    first, events = first_run()
    _, more = later_run(first)
    thoughts = [
        ThoughtRecorded(
            at=run.at,
            root_plan_id=run.root_plan_id,
            plan_id=run.plan_id,
            step_id=run.step_id,
            think_act_id=new_id(),
            cost_usd=Decimal("0.10"),
            status=Status.SUCCEEDED,
        )
        for run in (*events, *more)
        if isinstance(run, StepStarted)
    ]
    await store.record(*events, *more, *thoughts)
    await store.link()

    assert await ids(store, min_cost=0.2) == [first.root]
    assert await ids(store, min_cost=0.21) == []
    assert await ids(store, min_cost=0.2, all_parts=True) == []


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


async def test_parts_with_many_records_are_folded_to_their_totals(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.storage.postgres.tree.MAX_PART_RECORDS", 3)
    first, events = first_run()
    shown, of_shown = later_run(first)
    folded, of_folded = later_run(first, 50)
    beyond, of_beyond = later_run(folded, 70)
    await store.record(*events, *of_shown, *of_folded, *of_beyond)
    await store.link()

    rows = await store.reader.read_tree(first.root, Payloads.NONE)
    tree = plain(build_tree(rows, str(first.root)))

    [call] = tree["agentExecutions"][0]["toolCalls"]
    parts = {part["planId"]: part for part in call["subPlans"]}
    assert [*parts] == [str(each.root) for each in (shown, folded, beyond)]
    assert "folded" not in parts[str(shown.root)]
    for run in (folded, beyond):
        assert parts[str(run.root)]["agentExecutions"] == []
        assert parts[str(run.root)]["folded"]["toolCalls"] == 1
        assert parts[str(run.root)]["cumulative"]["toolCalls"] == 1
    assert tree["cumulative"]["toolCalls"] == 4
    assert tree["unplaced"] == []


async def test_program_that_continues_a_call_a_day_later_is_part_of_the_row_and_tree(
    store: Store,
) -> None:
    day = 86_400
    first, events = first_run()
    await store.record(*events)
    await store.link()
    later, more = later_run(first, at=day)

    await store.record(*more, later.plan_finished(day + 10, summary="Booked."))
    await store.link()

    [run] = await items(store)
    assert (run.root_plan_id, run.parts, run.answer) == (first.root, 2, "Booked.")
    assert run.finished_at == later.plan_finished(day + 10).at
    rows = await store.reader.read_tree(first.root, Payloads.NONE)
    [step] = plain(build_tree(rows, str(first.root)))["agentExecutions"]
    [call] = step["toolCalls"]
    assert [part["planId"] for part in call["subPlans"]] == [str(later.root)]


async def test_parts_of_other_processes_are_marked(store: Store) -> None:
    first, events = first_run()
    (_, other), (_, same) = later_run(first, 20), later_run(first, 40)
    one, another = new_id(), new_id()
    for recorder_id, recorded in ((one, events), (another, other), (one, same)):
        named = {"recorder_id": recorder_id}
        await store.record(*(each.model_copy(update=named) for each in recorded))
    await store.link()

    tree = await store.reader.read_tree(first.root, Payloads.NONE)

    continued = [plan.continues for plan in tree.plans if plan.continues]
    assert [each.is_by_other_process for each in continued] == [True, False]


async def test_part_that_joins_changes_or_leaves_resets_readers_of_the_first_run(
    store: Store,
) -> None:
    first, events = first_run()
    later, more = later_run(first)
    await store.record(*events)
    await store.link()

    async def is_reset(revision: int) -> bool:
        await store.link()
        return (await store.reader.read_changes(first.root, revision, 10)).is_reset

    changes: list[Callable[[], Awaitable[None]]] = [
        lambda: store.record(*more),
        lambda: store.record(later.call_finished(25)),
        lambda: store.writer.delete_run(later.root),
    ]
    for change in changes:
        before = (await store.reader.read_run(first.root)).revision
        assert not await is_reset(before)
        await change()
        assert await is_reset(before)


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
            rest = await store.reader.read_run(later.root)
            assert (rest.head_id, rest.beginning_deleted) == (None, True)


async def test_runs_that_follow_a_deleted_run_stay_one_piece_of_work(store: Store) -> None:
    first, second, third = Moments(), Moments(), Moments()
    claim: dict[str, Any] = {"follows_runs": (first.root,)}
    await store.record(first.plan_started(subject="p-1"))
    await store.record(second.plan_started(20, **claim), third.plan_started(30, **claim))
    await store.link()

    await store.writer.delete_run(first.root, all_parts=False)
    await store.link()

    [run] = await items(store)
    assert (run.root_plan_id, run.parts, run.beginning_deleted) == (second.root, 2, True)
    assert not (await store.reader.read_run(third.root)).beginning_deleted


async def test_erasing_a_subject_erases_later_runs_without_a_subject(store: Store) -> None:
    first, events = first_run(subject="p-1")
    free, more = later_run(first)
    other, others = later_run(first, 30, subject="p-2")
    await store.record(*events, *more, *others)
    await store.link()

    done = await store.writer.delete_subject("p-1")
    await store.link()

    assert (done.runs, done.left, done.parts_of_others) == (2, 0, [other.root])
    [rest] = await items(store, all_parts=True)
    assert (rest.root_plan_id, rest.beginning_deleted) == (other.root, True)
    with pytest.raises(RecordNotFound):
        await store.reader.read_run(free.root)


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
