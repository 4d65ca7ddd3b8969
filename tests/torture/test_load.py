"""The load check, which other tests use, detects lost and duplicate events."""

from __future__ import annotations

from collections.abc import Sequence

from tests.torture.load import Difference, deliver, difference, load_of
from tracer.records.events import Event, ThoughtRecorded
from tracer.storage.memory.store import MemoryStore
from tracer.store import WriteAnswer


class Forgetful(MemoryStore):
    """Acknowledges a batch that it does not keep."""

    writes = 0

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        self.writes += 1
        return WriteAnswer(len(events)) if self.writes == 2 else await super().write(events)


async def test_load_check_finds_no_difference_in_a_correct_store() -> None:
    load = load_of(300)
    store = MemoryStore()
    await deliver(load, [store])

    assert load.acknowledged == load.total > 300
    assert await difference(load, store) == Difference(lost=0, duplicated=0)


async def test_load_check_finds_a_missing_batch() -> None:
    load = load_of(300)
    store = Forgetful()
    await deliver(load, [store])

    assert (await difference(load, store)).lost > 0


async def test_load_check_finds_an_event_counted_twice() -> None:
    load = load_of(300)
    store = MemoryStore()
    await deliver(load, [store])
    thought = next(e for run in load.runs for e in run if isinstance(e, ThoughtRecorded))
    await store.write([thought.model_copy(update={"think_act_id": thought.root_plan_id})])

    assert (await difference(load, store)).duplicated > 0
