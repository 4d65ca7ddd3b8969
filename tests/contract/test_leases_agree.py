"""The memory store and Postgres expire the same leases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.living import Living, memory_living, postgres_living
from tests.contract.moments import Moments
from tests.contract.test_leases import by
from tests.profiles import scaled
from tracer.records.events import Event
from tracer.records.ids import sequential_ids
from tracer.storage.postgres.connection.pool import Pool, open_pool
from tracer.store import RunFilter, ToolCallFilter

RECORDERS, RUNS, CALLS = 3, 2, 3


@dataclass(frozen=True)
class Happening:
    """Something that happens to a store."""

    what: str
    seconds: int = 0
    recorder: int | None = 0
    run: int = 0
    call: int = 0


happenings = st.builds(
    Happening,
    what=st.sampled_from(["start", "start", "end", "renew", "pass time", "nobody looks"]),
    seconds=st.sampled_from([0, 30, 60, 400, 1000]),
    recorder=st.sampled_from([None, *range(RECORDERS)]),
    run=st.integers(0, RUNS - 1),
    call=st.integers(0, CALLS - 1),
)

_projects = count(1)
_ids = sequential_ids()
RECORDER_IDS = [_ids() for _ in range(RECORDERS)]
RUN_MOMENTS = [Moments(_ids(), _ids(), _ids()) for _ in range(RUNS)]
CALL_IDS = [_ids() for _ in range(CALLS)]


async def happen(store: Living, each: Happening) -> None:
    recorder_id = None if each.recorder is None else RECORDER_IDS[each.recorder]
    match each.what:
        case "renew":
            await store.writer.renew(recorder_id or RECORDER_IDS[0])
        case "pass time":
            await store.pass_time(each.seconds)
        case "nobody looks":
            store.clock.move(each.seconds)
        case _:
            moments = RUN_MOMENTS[each.run]
            tell = moments.call_started if each.what == "start" else moments.call_finished
            at = store.clock.seconds - each.seconds
            event: Event = tell(at, tool_call_id=CALL_IDS[each.call])
            await store.record(*by(recorder_id, event))
    # So that nothing counts as noted a moment ago.
    store.clock.move(10)


async def shown(store: Living) -> dict[tuple[UUID, UUID], str]:
    runs = await store.reader.list_runs(RunFilter(), 100, None)
    calls = await store.reader.list_tool_calls(ToolCallFilter(), 100, None)
    return {(run.root_plan_id, run.root_plan_id): run.shown_status for run in runs.items} | {
        (call.root_plan_id, call.tool_call_id): call.shown_status for call in calls.items
    }


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(database_url) as pool:
        yield pool


@pytest.mark.thorough
@settings(max_examples=scaled(40))
@given(story=st.lists(happenings, min_size=4, max_size=25))
async def test_memory_and_postgres_store_abandon_the_same_records(
    pool: Pool, story: list[Happening]
) -> None:
    memory, postgres = await memory_living(), await postgres_living(pool, next(_projects))
    for each in [*story, Happening("pass time", 30)]:
        for store in (memory, postgres):
            await happen(store, each)
        if each.what == "pass time":
            assert await shown(postgres) == await shown(memory)
