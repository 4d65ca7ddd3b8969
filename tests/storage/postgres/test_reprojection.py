"""Runs are projected again on request, and in the background by a newer version."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.otel.made_traces import agent, chat, make_span, spans_from
from tests.projecting import DatabaseProjection, project_in
from tests.storage.postgres.deletions import record, rich_run, rows
from tests.storage.postgres.lock_waits import until
from tests.storage.postgres.stored_spans import make_pending, store_block, store_run
from tracer.otel.otlp.blocks import pack_block
from tracer.otel.otlp.spans import root_plan_id
from tracer.otel.projection import PROJECTION_VERSION
from tracer.records import new_id
from tracer.records.prices import ALWAYS, ModelPrice
from tracer.storage.postgres import Pool, ProjectPool
from tracer.storage.postgres import projection as module
from tracer.storage.postgres.deletion import PostgresDeletion
from tracer.storage.postgres.jobs import Reprojector
from tracer.storage.postgres.projection import Reprojection
from tracer.storage.postgres.projects import ModelPrices
from tracer.storage.postgres.spans import MOST_ATTEMPTS

STATE = "SELECT root_plan_id, revision, projected, projection_version FROM run ORDER BY 1"
PENDING = "SELECT root_plan_id FROM pending_run ORDER BY root_plan_id"


@pytest.fixture
def reprojection(pool: Pool) -> Reprojection:
    return Reprojection(ProjectPool(pool))


async def accepted(pool: Pool) -> UUID:
    """Store the spans of a run, and make it pending."""
    spans = spans_from(agent(1, "planner"), chat(2, parent=1, tokens=7))
    run = root_plan_id(spans[0].trace_id)
    await store_block(pool, spans)
    await make_pending(pool, run)
    return run


async def projected(
    pool: Pool, reprojection: Reprojection, *runs: UUID, with_prices: bool = False
) -> None:
    """Project runs again."""
    goals = await reprojection.request(runs, with_prices=with_prices)
    await project_in(pool)
    assert await reprojection.wait(goals) == []


async def test_reprojection_restores_records_and_changes_nothing_else(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = await accepted(pool)
    await project_in(pool)
    [(_, revision, first, _)] = await rows(pool, STATE)
    records = "SELECT step_id, agent_name, revision, recorded_at FROM agent_execution_record"
    before = await rows(pool, records)
    assert [name for _, name, _, _ in before] == ["planner"]

    await projected(pool, reprojection, run)

    [(_, again, second, version)] = await rows(pool, STATE)
    assert (again, version) == (revision, PROJECTION_VERSION)
    assert second > first
    assert await rows(pool, records) == before
    assert await rows(pool, PENDING) == []

    # As an older version projected it.
    await rows(pool, "UPDATE agent_execution_record SET agent_name = 'old', digest = 1 RETURNING 1")
    await projected(pool, reprojection, run)
    assert [name for _, name, _, _ in await rows(pool, records)] == ["planner"]


async def test_reprojection_makes_only_existing_span_runs_pending(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = await accepted(pool)
    await project_in(pool)
    of_events, events = rich_run()
    await record(pool, *events)
    deleted, newer = UUID(int=1), UUID(int=2)
    for each in (deleted, newer):
        await store_run(pool, each)
    await rows(
        pool, "UPDATE run SET deleted_at = now() WHERE root_plan_id = %s RETURNING 1", deleted
    )
    await rows(
        pool,
        "UPDATE run SET projection_version = %s WHERE root_plan_id = %s RETURNING 1",
        *(PROJECTION_VERSION + 1, newer),
    )

    goals = await reprojection.request([run, run, of_events.root, deleted, newer, new_id()])

    assert set(goals) == {run}
    assert await rows(pool, PENDING) == [(run,)]
    assert [batch async for batch in reprojection.batches()] == [[run]]
    assert await reprojection.request([]) == {}


async def test_new_request_clears_the_failure_of_a_run(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = UUID(int=1)
    await store_run(pool, run)
    await make_pending(pool, run, "infinity")
    await rows(pool, "UPDATE pending_run SET attempts = 5, failure = 'x' RETURNING 1")
    await rows(pool, "UPDATE run SET projection_error = 'x' RETURNING 1")

    goals = await reprojection.request([run], with_prices=True)
    await reprojection.request([run])

    assert goals == {run: 2}
    [state] = await rows(
        pool,
        "SELECT arrived, spans, size, attempts, failure, with_prices, due_at <= now()"
        " FROM pending_run",
    )
    assert state == (3, 1, 1, 0, None, True, True)
    assert await rows(pool, "SELECT projection_error, revision FROM run") == [(None, 2)]


async def test_waiting_for_projection_returns_the_runs_that_failed(
    pool: Pool, reprojection: Reprojection
) -> None:
    run, failed, damaged = await accepted(pool), UUID(int=1), UUID(int=2)
    for each in (failed, damaged):
        await store_run(pool, each)
    await make_pending(pool, failed, "infinity")
    await make_pending(pool, damaged)
    await rows(
        pool,
        "INSERT INTO otel_block VALUES (1, %s, %s, 1, 1, now(), %s) RETURNING 1",
        *(damaged, bytes(16), pack_block(b"no message")),
    )

    settling = asyncio.create_task(reprojection.settle())
    for _ in range(MOST_ATTEMPTS):
        await project_in(pool)
    await DatabaseProjection(pool.kwargs).link()

    assert await settling == [failed, damaged]

    assert await rows(pool, PENDING) == [(failed,), (damaged,)]
    assert [each for each, _, done, _ in await rows(pool, STATE) if done] == [run]


async def test_runs_without_a_projector_are_returned_as_not_projected(
    pool: Pool, reprojection: Reprojection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0)
    run = await accepted(pool)
    assert await reprojection.settle() == [run]


async def test_settling_waits_until_runs_are_linked(
    pool: Pool, reprojection: Reprojection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, events = rich_run()
    await record(pool, *events)

    settling = asyncio.create_task(reprojection.settle())
    await asyncio.sleep(2 * module.POLL_SECONDS)
    assert not settling.done()
    later, _ = rich_run()
    await DatabaseProjection(pool.kwargs).link()
    assert await settling == []

    await record(pool, later.plan_started(follows_runs=(run.root,)))
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0)
    assert await reprojection.settle() == [later.root]


async def test_reprojection_does_not_wait_for_a_deleted_run(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = await accepted(pool)
    goals = await reprojection.request([run])
    await PostgresDeletion(ProjectPool(pool)).erase_run(run)
    assert await reprojection.wait(goals) == []


async def outdated(pool: Pool, count: int) -> list[UUID]:
    """Store runs that an older version projected."""
    runs = [UUID(int=number) for number in range(1, count + 1)]
    for run in runs:
        await store_block(pool, spans_from({**make_span(1, "a span"), "traceId": run.hex}))
    return runs


async def pending(pool: Pool) -> list[UUID]:
    return [run for (run,) in await rows(pool, PENDING)]


async def test_background_job_makes_outdated_runs_pending_in_small_batches(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RUNS_AT_ONCE", 2)
    runs = await outdated(pool, 5)
    current, of_events = UUID(int=99), rich_run()
    await store_run(pool, current)
    await record(pool, *of_events[1])
    set_version = "UPDATE run SET projection_version = %s WHERE root_plan_id = %s RETURNING 1"
    await rows(pool, set_version, PROJECTION_VERSION, current)
    working = asyncio.create_task(Reprojector(pool).run_once())
    for batch in (runs[:2], runs[2:4], runs[4:]):

        async def is_pending(batch: list[UUID] = batch) -> bool:
            return await pending(pool) == batch

        await until(is_pending)
        await project_in(pool)
    await working

    versions = {run: version for run, _, _, version in await rows(pool, STATE)}
    assert {versions[run] for run in runs} == {PROJECTION_VERSION}


async def test_background_job_retries_failed_runs_of_older_projection_versions(pool: Pool) -> None:
    [run] = await outdated(pool, 1)
    await make_pending(pool, run, "infinity")
    job = Reprojector(pool)
    working = asyncio.create_task(job.run_once())

    async def is_due() -> bool:
        return bool(await rows(pool, "SELECT 1 FROM pending_run WHERE due_at <= now()"))

    await until(is_due)
    await rows(pool, "UPDATE pending_run SET due_at = 'infinity' RETURNING 1")
    await working
    await job.run_once()  # only once
    assert await rows(pool, "SELECT due_at = 'infinity' FROM pending_run") == [(True,)]
    assert await pending(pool) == [run]


async def test_reprojection_changes_costs_only_if_prices_changed(
    pool: Pool, reprojection: Reprojection
) -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
    usage = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 10}
    spans = spans_from(make_span(1, "chat gpt-4o", model | usage))
    await store_block(pool, spans)
    run = root_plan_id(spans[0].trace_id)
    await make_pending(pool, run)
    await project_in(pool)
    costs = "SELECT cost_usd::float FROM think_act_record"
    [(listed,)] = await rows(pool, costs)
    assert listed is not None
    await rows(pool, "UPDATE think_act_record SET cost_usd = 5, digest = 1 RETURNING 1")
    found: list[Any] = []
    for with_prices in (False, True):
        await projected(pool, reprojection, run, with_prices=with_prices)
        found += await rows(pool, costs)
    assert found == [(5,), (listed,)]


async def test_reproject_applies_project_prices_to_stored_runs_if_prices_is_set(
    pool: Pool, reprojection: Reprojection
) -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "ward-llama"}
    usage = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 10}
    spans = spans_from(make_span(1, "chat ward-llama", model | usage))
    await store_block(pool, spans)
    run = root_plan_id(spans[0].trace_id)
    await make_pending(pool, run)
    await project_in(pool)
    totals = "SELECT cost_usd::float, unpriced_calls FROM run"
    own = ModelPrices(ProjectPool(pool))
    found: list[Any] = await rows(pool, totals)

    await own.set_price(ModelPrice("ward-*", None, ALWAYS, Decimal(2), Decimal(100)))
    await projected(pool, reprojection, run, with_prices=True)
    found += await rows(pool, totals)
    await own.delete("ward-*", None, ALWAYS)
    for with_prices in (False, True):
        await projected(pool, reprojection, run, with_prices=with_prices)
        found += await rows(pool, totals)

    # 1,000 tokens at $2 a million and 10 at $100.
    assert found == [(0, 1), (0.003, 0), (0.003, 0), (0, 1)]


async def test_own_price_of_zero_makes_a_cost_known(pool: Pool) -> None:
    own = ModelPrices(ProjectPool(pool))
    await own.set_price(ModelPrice("*", None, ALWAYS, Decimal(0), Decimal(0)))
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "ward-llama"}
    spans = spans_from(make_span(1, "chat ward-llama", model))
    await store_block(pool, spans)
    await make_pending(pool, root_plan_id(spans[0].trace_id))
    await project_in(pool)
    assert await rows(pool, "SELECT cost_usd, unpriced_calls FROM run") == [(0, 0)]
