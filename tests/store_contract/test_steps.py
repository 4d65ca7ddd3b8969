"""A step by its id, and what the models of a run were given."""

from __future__ import annotations

import pytest

from tests.sample_runs import sample_run
from tests.store_contract.stores import Store
from tracer.errors import RecordNotFound
from tracer.ids import new_id


async def test_a_step_is_read_whole(store: Store) -> None:
    run = sample_run()
    await store.writer.write(run.events)

    step = await store.reader.read_step(run.step)

    assert (step.plan_id, step.agent_name) == (run.root, "nurse")
    assert (step.request, step.result) == ("Review", "fine")
    with pytest.raises(RecordNotFound):
        await store.reader.read_step(new_id())


async def test_the_messages_of_a_run_are_read_by_their_rounds(store: Store) -> None:
    run, other = sample_run(), sample_run()
    await store.writer.write([*run.events, *other.events])

    messages = await store.reader.read_messages(run.root)

    assert messages == {run.think_act: '[{"role":"user","content":"Review"}]'}
    assert await store.reader.read_messages(new_id()) == {}


async def test_a_deleted_run_has_no_messages(store: Store) -> None:
    run = sample_run()
    await store.writer.write(run.events)
    await store.writer.delete_run(run.root)

    assert await store.reader.read_messages(run.root) == {}
    with pytest.raises(RecordNotFound):
        await store.reader.read_step(run.step)
