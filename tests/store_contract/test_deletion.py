"""Deleting a run leaves a tombstone; what cannot be stored is refused and nothing else is."""

from __future__ import annotations

import pytest

from tests.sample_runs import sample_run
from tests.store_contract.moments import Moments
from tests.store_contract.stores import NewStore, Store
from tracer.errors import RecordNotFound
from tracer.ids import new_id
from tracer.lineage import Payloads
from tracer.store import RunFilter, ToolCallFilter


async def test_a_deleted_run_is_gone_with_all_below_it(store: Store) -> None:
    run, other = sample_run(), sample_run()
    await store.record(*run.events, *other.events)
    await store.writer.delete_run(run.root)
    for read in (
        store.reader.read_run(run.root),
        store.reader.read_plan(run.root),
        store.reader.read_plan(run.sub_plans[0]),
        store.reader.read_tree(run.root, Payloads.NONE),
        store.reader.read_think_act(run.think_act),
        store.reader.read_tool_call(run.failed_call),
    ):
        with pytest.raises(RecordNotFound):
            await read
    listed = (await store.reader.list_runs(RunFilter(), 10, None)).items
    assert [each.root_plan_id for each in listed] == [other.root]
    calls = (await store.reader.list_tool_calls(ToolCallFilter(), 10, None)).items
    assert {call.root_plan_id for call in calls} == {other.root}


async def test_events_of_a_deleted_run_are_refused_and_their_neighbours_stored(
    store: Store,
) -> None:
    deleted, other = Moments(), Moments()
    await store.record(deleted.plan_started())
    await store.writer.delete_run(deleted.root)
    answer = await store.writer.write(
        [deleted.call_started(), other.plan_started(), deleted.plan_finished()]
    )
    assert answer.stored == 1
    assert [(refusal.index, refusal.code) for refusal in answer.refused] == [
        (0, "run_deleted"),
        (2, "run_deleted"),
    ]
    assert answer.refused[0].detail.endswith(".")
    assert (await store.reader.read_run(other.root)).status == "running"
    with pytest.raises(RecordNotFound):
        await store.reader.read_tool_call(deleted.call)


async def test_a_run_is_deleted_once(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)
    with pytest.raises(RecordNotFound):
        await store.writer.delete_run(run.root)
    with pytest.raises(RecordNotFound):
        await store.writer.delete_run(new_id())


async def test_what_other_projects_have_does_not_exist(new_store: NewStore) -> None:
    mine, theirs = new_store(), new_store()
    run = sample_run()
    await theirs.record(*run.events)
    with pytest.raises(RecordNotFound):
        await mine.reader.read_run(run.root)
    with pytest.raises(RecordNotFound):
        await mine.reader.read_tree(run.sub_plans[0], Payloads.NONE)
    with pytest.raises(RecordNotFound):
        await mine.writer.delete_run(run.root)
    await mine.record(*run.events[:3])
    await mine.writer.delete_run(run.root)
    assert (await theirs.reader.read_run(run.root)).tool_calls == 3
