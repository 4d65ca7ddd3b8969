"""Records depend on the set of events alone: no order, split or repetition changes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.contract.generated_runs import Batches, retold_forests
from tests.contract.stores import NewStore, Store, all_records, content, tree
from tests.profiles import scaled
from tests.sample_runs import sample_run
from tracer.records.events import Event
from tracer.store import RunFilter


@settings(max_examples=scaled(100))
@given(forest=retold_forests())
async def test_records_are_equal_if_events_are_reordered_split_or_repeated(
    new_store: NewStore, forest: tuple[list[Event], Batches]
) -> None:
    events, batches = forest
    once, shuffled = new_store(), new_store()
    await once.record(*events)
    for batch in batches:
        await shuffled.record(*batch)
    assert await all_records(shuffled) == await all_records(once)


@settings(max_examples=scaled(100))
@given(forest=retold_forests())
async def test_totals_of_a_run_equal_those_of_its_tree(
    new_store: NewStore, forest: tuple[list[Event], Batches]
) -> None:
    store = new_store()
    for batch in forest[1]:
        await store.record(*batch)
    for run in (await store.reader.list_runs(RunFilter(), 100, None)).items:
        cumulative = (await tree(store, run.root_plan_id))["cumulative"]
        assert cumulative["toolCalls"] == run.tool_calls
        assert cumulative["failures"] == run.failures
        assert cumulative["inputTokens"] == run.input_tokens
        assert cumulative["unpricedCalls"] == run.unpriced_calls
        assert round(cumulative["costUsd"] or 0, 9) == round(float(run.cost_usd), 9)
        assert (cumulative["costUsd"] is None) == (run.known_cost is None)


async def test_writing_the_same_run_twice_changes_no_record_and_no_count(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events)
    before = await all_records(store)
    first = await store.reader.read_tool_call(run.failed_call)
    await store.record(*run.events)
    assert await all_records(store) == before
    again = await store.reader.read_tool_call(run.failed_call)
    assert again.call == first.call


async def test_writing_an_empty_list_of_events_stores_and_rejects_nothing(store: Store) -> None:
    answer = await store.writer.write([])
    assert (answer.stored, answer.refused) == (0, [])


@pytest.mark.thorough  # a special case of the property above
async def test_single_events_in_reverse_give_the_same_records(new_store: NewStore) -> None:
    run = sample_run(sub_plans=3)
    at_once, one_by_one = new_store(), new_store()
    await at_once.record(*run.events)
    for event in reversed(run.events):
        await one_by_one.record(event)
    assert await all_records(one_by_one) == await all_records(at_once)


async def test_later_write_raises_the_revision_and_keeps_recorded_at(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events[:2])
    first = await store.reader.read_run(run.root)
    await store.record(*run.events)
    then = await store.reader.read_run(run.root)
    assert then.recorded_at == first.recorded_at
    assert then.revision > first.revision
    assert content(then) != content(first)


async def test_only_records_that_a_write_changes_get_the_new_revision(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events[:4])
    await store.record(*run.events[4:])
    plan = (await store.reader.read_plan(run.root)).plan
    think_act = await store.reader.read_think_act(run.think_act)
    assert think_act.revision < plan.revision
    assert plan.revision == (await store.reader.read_run(run.root)).revision
