"""Runs whose recorder is dead accept events of another recorder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import pytest

from tests.contract.living import Living, postgres_living
from tests.contract.moments import START, Moments
from tests.contract.test_leases import all_are, by, in_flight, statuses
from tests.trees import read_tree
from tracer.lineage import Payloads
from tracer.records import Status, new_id
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


async def opened_below_ended_root(store: Living, recorder: UUID) -> tuple[Moments, UUID]:
    """Record a run whose root plan has ended while its sub-plan works on."""
    run = await in_flight(store, recorder)
    sub_plan = new_id()
    await store.record(
        *by(
            recorder,
            run.sub_plan_started(sub_plan, run.call, at=4),
            run.call_finished(5),
            run.step_finished(8),
            run.plan_finished(9),
        )
    )
    return run, sub_plan


async def shown(store: Living, run: Moments, sub_plan: UUID) -> tuple[str, float | None, str]:
    """Return the status and the end of a run, in seconds, and the status of its sub-plan."""
    whole = await store.reader.read_run(run.root)
    rows = await read_tree(store.reader, run.root, Payloads.NONE)
    (status,) = (plan["status"] for plan in rows.plans if plan["planId"] == str(sub_plan))
    end = None if whole.finished_at is None else (whole.finished_at - START).total_seconds()
    return whole.shown_status, end, str(status)


async def test_run_is_running_until_its_last_sub_plan_ends(new_store: NewLiving) -> None:
    store, recorder = await new_store(1), new_id()
    run, sub_plan = await opened_below_ended_root(store, recorder)
    assert await shown(store, run, sub_plan) == ("running", None, "running")

    await store.record(*by(recorder, run.plan_finished(30, Status.FAILED, plan=sub_plan)))

    assert await shown(store, run, sub_plan) == ("succeeded", 30, "failed")


async def test_silent_sub_plan_below_an_ended_root_is_abandoned_while_its_recorder_lives(
    new_store: NewLiving,
) -> None:
    store, recorder = await new_store(1), new_id()
    run, sub_plan = await opened_below_ended_root(store, recorder)
    before = (await store.reader.read_run(run.root)).revision

    async def keep_alive(seconds: int) -> None:
        for _ in range(seconds // 30):
            await store.writer.renew(recorder)
            await store.pass_time(30)

    await keep_alive(870)
    assert await shown(store, run, sub_plan) == ("running", None, "running")
    await keep_alive(60)
    assert await shown(store, run, sub_plan) == ("succeeded", 9, "abandoned")
    assert (await store.reader.read_run(run.root)).revision > before

    await store.record(*by(recorder, run.step_started(940, plan=sub_plan, step_id=new_id())))
    await keep_alive(30)
    assert await shown(store, run, sub_plan) == ("running", None, "running")
    await store.record(*by(recorder, run.plan_finished(960, plan=sub_plan)))
    assert await shown(store, run, sub_plan) == ("succeeded", 960, "succeeded")


async def test_run_has_the_status_of_its_root_if_the_recorder_of_its_sub_plan_dies(
    new_store: NewLiving,
) -> None:
    store, recorder = await new_store(1), new_id()
    run, sub_plan = await opened_below_ended_root(store, recorder)

    await store.pass_time(90)

    assert await shown(store, run, sub_plan) == ("succeeded", 9, "abandoned")
