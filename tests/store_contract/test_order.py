"""Any permutation, split and repetition of the same events ends in the same records."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings

from tests.sample_runs import sample_run
from tests.store_contract.generated_runs import Batches, retold_forests
from tests.store_contract.stores import NewStore, Store, all_records, content, tree
from tests.trees import read_tree
from tracer.events import Event
from tracer.lineage import Payloads
from tracer.store import RunFilter

thorough = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


@thorough
@given(forest=retold_forests())
async def test_any_retelling_of_a_forest_ends_in_the_same_records(
    new_store: NewStore, forest: tuple[list[Event], Batches]
) -> None:
    events, batches = forest
    told, retold = new_store(), new_store()
    await told.record(*events)
    for batch in batches:
        await retold.record(*batch)
    assert await all_records(retold) == await all_records(told)


@thorough
@given(forest=retold_forests())
async def test_the_totals_of_a_run_are_those_of_its_tree(
    new_store: NewStore, forest: tuple[list[Event], Batches]
) -> None:
    store = new_store()
    for batch in forest[1]:
        await store.record(*batch)
    for run in (await store.reader.list_runs(RunFilter(), 100, None)).items:
        rows = await read_tree(store.reader, run.root_plan_id, Payloads.NONE)
        statuses = Counter(row["status"] for row in (*rows.think_acts, *rows.tool_calls))
        assert run.failures == statuses["failed"]
        cumulative = (await tree(store, run.root_plan_id))["cumulative"]
        assert cumulative["toolCalls"] == run.tool_calls
        assert cumulative["failures"] == run.failures
        assert cumulative["inputTokens"] == run.input_tokens
        assert round(cumulative["costUsd"], 9) == round(float(run.cost_usd), 9)


async def test_writing_a_run_again_changes_nothing_and_counts_nothing_twice(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events)
    before = await all_records(store)
    first = await store.reader.read_tool_call(run.failed_call)
    await store.record(*run.events)
    assert await all_records(store) == before
    again = await store.reader.read_tool_call(run.failed_call)
    assert again.call == first.call


async def test_writing_nothing_is_stored_at_once(store: Store) -> None:
    answer = await store.writer.write([])
    assert (answer.stored, answer.refused) == (0, [])


async def test_each_event_by_itself_and_all_at_once_end_alike(new_store: NewStore) -> None:
    run = sample_run(sub_plans=3)
    at_once, one_by_one = new_store(), new_store()
    await at_once.record(*run.events)
    for event in reversed(run.events):
        await one_by_one.record(event)
    assert await all_records(one_by_one) == await all_records(at_once)


async def test_the_first_recorded_at_stays_and_the_revision_grows(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events[:2])
    first = await store.reader.read_run(run.root)
    await store.record(*run.events)
    then = await store.reader.read_run(run.root)
    assert then.recorded_at == first.recorded_at
    assert then.revision > first.revision
    assert content(then) != content(first)


async def test_only_records_that_a_write_changes_get_its_revision(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events[:4])
    await store.record(*run.events[4:])
    plan = (await store.reader.read_plan(run.root)).plan
    think_act = await store.reader.read_think_act(run.think_act)
    assert think_act.revision < plan.revision
    assert plan.revision == (await store.reader.read_run(run.root)).revision
