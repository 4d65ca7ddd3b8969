"""Runs whose recorder is dead accept events of another recorder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.contract.living import Living, postgres_living
from tests.contract.test_leases import all_are, by, in_flight, statuses
from tracer.records import new_id
from tracer.storage.postgres import open_pool

NewLiving = Callable[[int], Awaitable[Living]]


@pytest.fixture
async def new_store(database_url: str) -> AsyncIterator[NewLiving]:
    """Return what creates an empty store for a project."""
    async with open_pool(database_url) as pool:
        yield lambda project_id: postgres_living(pool, project_id)


async def test_records_of_a_dead_recorder_can_be_ended_by_another_recorder(
    new_store: NewLiving,
) -> None:
    store = await new_store(1)
    run = await in_flight(store, new_id())
    await store.pass_time(60)

    await store.record(*by(new_id(), run.call_finished(70), run.plan_finished(70)))
    await store.pass_time(60)

    assert await statuses(store, run) == {
        **all_are("abandoned"),
        **dict.fromkeys(("run", "plan", "call"), "succeeded"),
    }
