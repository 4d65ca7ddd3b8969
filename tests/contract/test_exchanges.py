"""Exchanges: the requests and answers of runs, which form the history of a session."""

from __future__ import annotations

from tests.contract.moments import Moments
from tests.contract.stores import NewStore, Store
from tracer.records import Status, new_id
from tracer.store import Exchange


async def test_exchanges_are_returned_in_the_order_of_the_given_run_ids(store: Store) -> None:
    runs = [Moments() for _ in range(4)]
    for number, run in enumerate(runs):
        await store.record(
            run.plan_started(user_request=f"question {number}"),
            run.plan_finished(summary=f"answer {number}"),
        )
    ids = [runs[number].root for number in (2, 0, 3)]
    assert await store.reader.list_exchanges(ids) == [
        Exchange(runs[number].root, f"question {number}", f"answer {number}")
        for number in (2, 0, 3)
    ]
    assert await store.reader.list_exchanges([]) == []


async def test_exchange_has_an_answer_only_if_the_run_succeeded(store: Store) -> None:
    answers = {}
    for status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED):
        run = Moments()
        await store.record(
            run.plan_started(user_request="Go"), run.plan_finished(status=status, summary="Done")
        )
        [exchange] = await store.reader.list_exchanges([run.root])
        answers[status] = exchange.answer
    assert answers == {Status.SUCCEEDED: "Done", Status.FAILED: None, Status.CANCELLED: None}


async def test_exchanges_exclude_deleted_missing_and_running_runs(store: Store) -> None:
    deleted, open_, placeholder, silent = (Moments() for _ in range(4))
    await store.record(deleted.plan_started(user_request="Go"), deleted.plan_finished())
    await store.writer.delete_run(deleted.root)
    await store.record(open_.plan_started(user_request="Go"), placeholder.step_started())
    await store.record(silent.plan_started(), silent.plan_finished(summary="Done"))
    ids = [deleted.root, open_.root, placeholder.root, silent.root, new_id()]
    assert await store.reader.list_exchanges(ids) == []


async def test_exchanges_exclude_sub_plans(store: Store) -> None:
    run, sub_plan = Moments(), new_id()
    await store.record(
        run.plan_started(user_request="the user's"),
        run.call_started(),
        run.sub_plan_started(sub_plan, run.call, user_request="the model's"),
        run.plan_finished(plan=sub_plan, summary="below"),
        run.plan_finished(summary="above"),
    )
    expected = [Exchange(run.root, "the user's", "above")]
    assert await store.reader.list_exchanges([run.root, sub_plan]) == expected


async def test_exchanges_exclude_runs_of_other_projects(new_store: NewStore) -> None:
    mine, theirs = new_store(), new_store()
    run = Moments()
    await theirs.record(run.plan_started(user_request="Go"), run.plan_finished())
    assert await mine.reader.list_exchanges([run.root]) == []
