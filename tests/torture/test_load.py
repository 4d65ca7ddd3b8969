"""The load check, which other tests use, detects lost and duplicate events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from tests.projecting import project_in
from tests.torture.load import Difference, deliver, difference, load_of
from tracer.records.events import Event, ThoughtRecorded
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import WriteAnswer


class Forgetful(PostgresWriter):
    """Acknowledges a batch that it does not keep."""

    writes = 0

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        self.writes += 1
        return WriteAnswer(len(events)) if self.writes == 2 else await super().write(events)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(database_url) as pool:
        yield pool


async def test_load_check_finds_no_difference_in_a_correct_store(pool: Pool) -> None:
    load = load_of(300)
    await deliver(load, [postgres_writer(ProjectPool(pool))])
    await project_in(pool)

    assert load.acknowledged == load.total > 300
    found = await difference(load, PostgresReader(ProjectPool(pool)))
    assert found == Difference(lost=0, duplicated=0)


async def test_load_check_finds_a_missing_batch(pool: Pool) -> None:
    load = load_of(300)
    await deliver(load, [Forgetful(**vars(postgres_writer(ProjectPool(pool))))])
    await project_in(pool)

    assert (await difference(load, PostgresReader(ProjectPool(pool)))).lost > 0


async def test_load_check_finds_an_event_counted_twice(pool: Pool) -> None:
    load = load_of(300)
    writer = postgres_writer(ProjectPool(pool))
    await deliver(load, [writer])
    await project_in(pool)
    thought = next(e for run in load.runs for e in run if isinstance(e, ThoughtRecorded))
    await writer.write([thought.model_copy(update={"think_act_id": thought.root_plan_id})])

    assert (await difference(load, PostgresReader(ProjectPool(pool)))).duplicated > 0
