"""Reading the messages of all model calls of a run."""

from __future__ import annotations

from tests.contract.stores import Store
from tests.sample_runs import sample_run
from tracer.records import new_id


async def test_messages_of_a_run_are_returned_by_think_act_id(store: Store) -> None:
    run, other = sample_run(), sample_run()
    await store.writer.write([*run.events, *other.events])

    messages = await store.reader.read_messages(run.root)

    assert messages == {run.think_act: '[{"role":"user","content":"Review"}]'}
    assert await store.reader.read_messages(new_id()) == {}
    assert await store.reader.read_message_bytes(run.root) == len(messages[run.think_act])
    assert await store.reader.read_message_bytes(new_id()) == 0


async def test_messages_of_a_deleted_run_are_empty(store: Store) -> None:
    run = sample_run()
    await store.writer.write(run.events)
    await store.writer.delete_run(run.root)

    assert await store.reader.read_messages(run.root) == {}
