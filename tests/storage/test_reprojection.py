"""Runs are projected again on request, and in the background by a newer version."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.otel.made_traces import agent, chat, made, spans_from
from tests.storage.deletions import record, rich_run, rows
from tests.storage.stored_spans import make_pending, store_block, store_run
from tracer.otel.otlp.blocks import pack_block
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.otel.projection.project import PROJECTION_VERSION
from tracer.records.ids import new_id
from tracer.records.prices import ALWAYS, ModelPrice
from tracer.storage.postgres.connection.pool import Pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.deletion.deletion import PostgresDeletion
from tracer.storage.postgres.jobs.reprojector import Reprojector
from tracer.storage.postgres.projects.model_prices import ModelPrices
from tracer.storage.postgres.spans.reprojection import Reprojection, projecting_at

STATE = "SELECT root_plan_id, revision, projected, projection_version FROM run ORDER BY 1"
PENDING = "SELECT root_plan_id FROM pending_run ORDER BY root_plan_id"


@pytest.fixture
def reprojection(pool: Pool, database_url: str) -> Reprojection:
    return Reprojection(ProjectPool(pool), projecting_at(database_url), idle_seconds=0)


async def accepted(pool: Pool) -> UUID:
    """Store the spans of a run, and make it pending."""
    spans = spans_from(agent(1, "planner"), chat(2, parent=1, tokens=7))
    run = root_plan_id(spans[0].trace_id)
    await store_block(pool, spans)
    await make_pending(pool, run)
    return run


async def projected(
    reprojection: Reprojection, *runs: UUID, with_prices: bool = False
) -> set[UUID]:
    """Project runs again, and return those whose projection failed."""
    waiting = await reprojection.request(runs, with_prices=with_prices)
    async for _ in reprojection.wait(waiting):
        pass
    assert not waiting.goals
    return waiting.failed


async def test_reprojection_restores_records_and_changes_nothing_else(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = await accepted(pool)
    assert await reprojection.settle() == []
    [(_, revision, first, _)] = await rows(pool, STATE)
    records = "SELECT step_id, agent_name, revision, recorded_at FROM agent_execution_record"
    before = await rows(pool, records)
    assert [name for _, name, _, _ in before] == ["planner"]

    assert await projected(reprojection, run) == set()

    [(_, again, second, version)] = await rows(pool, STATE)
    assert (again, version) == (revision, PROJECTION_VERSION)
    assert second > first
    assert await rows(pool, records) == before
    assert await rows(pool, PENDING) == []

    # As an older version projected it.
    await rows(pool, "UPDATE agent_execution_record SET agent_name = 'old', digest = 1 RETURNING 1")
    assert await projected(reprojection, run) == set()
    assert [name for _, name, _, _ in await rows(pool, records)] == ["planner"]


async def test_reprojection_makes_only_existing_span_runs_pending(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = await accepted(pool)
    await reprojection.settle()
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

    waiting = await reprojection.request([run, run, of_events.root, deleted, newer, new_id()])

    assert set(waiting.goals) == {run}
    assert await rows(pool, PENDING) == [(run,)]
    assert await reprojection.count() == 1
    assert [batch async for batch in reprojection.batches()] == [[run]]
    assert (await reprojection.request([])).goals == {}


async def test_new_request_clears_the_failure_of_a_run(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = UUID(int=1)
    await store_run(pool, run)
    await make_pending(pool, run, "infinity")
    await rows(pool, "UPDATE pending_run SET attempts = 5, failure = 'x' RETURNING 1")
    await rows(pool, "UPDATE run SET projection_error = 'x' RETURNING 1")

    waiting = await reprojection.request([run], with_prices=True)
    await reprojection.request([run])

    assert waiting.goals == {run: 2}
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

    assert await reprojection.settle() == [failed, damaged]

    assert await rows(pool, PENDING) == [(failed,), (damaged,)]
    assert [each for each, _, done, _ in await rows(pool, STATE) if done] == [run]


async def test_reprojection_does_not_wait_for_a_deleted_run(
    pool: Pool, reprojection: Reprojection
) -> None:
    run = await accepted(pool)
    waiting = await reprojection.request([run])
    await PostgresDeletion(ProjectPool(pool)).erase_run(run)
    assert [dict(each.goals) async for each in reprojection.wait(waiting)] == [{}]
    assert waiting.failed == set()


async def outdated(pool: Pool, count: int) -> list[UUID]:
    """Store runs that an older version projected."""
    runs = [UUID(int=number) for number in range(1, count + 1)]
    for run in runs:
        await store_block(pool, spans_from({**made(1, "a span"), "traceId": run.hex}))
    return runs


async def pending(pool: Pool) -> list[UUID]:
    return [run for (run,) in await rows(pool, PENDING)]


async def test_background_job_reprojects_outdated_runs_in_small_batches(
    pool: Pool, reprojection: Reprojection
) -> None:
    runs = await outdated(pool, 5)
    current, of_events = UUID(int=99), rich_run()
    await store_run(pool, current)
    await record(pool, *of_events[1])
    set_version = "UPDATE run SET projection_version = %s WHERE root_plan_id = %s RETURNING 1"
    await rows(pool, set_version, PROJECTION_VERSION, current)
    job = Reprojector(pool, runs_at_once=2)
    found = []
    for _ in range(4):
        await job.run_once()
        found.append(await pending(pool))
        await job.run_once()  # nothing is added while these are due
        assert await pending(pool) == found[-1]
        assert await reprojection.settle() == []

    assert found == [runs[:2], runs[2:4], runs[4:], []]
    versions = {run: version for run, _, _, version in await rows(pool, STATE)}
    assert {versions[run] for run in runs} == {PROJECTION_VERSION}


async def test_background_job_waits_until_no_run_is_due(pool: Pool) -> None:
    runs = await outdated(pool, 2)
    busy = UUID(int=50)
    await store_run(pool, busy)
    await make_pending(pool, busy)
    job = Reprojector(pool)
    await job.run_once()
    assert await pending(pool) == [busy]
    await rows(pool, "UPDATE pending_run SET due_at = now() + interval '1 hour' RETURNING 1")
    await job.run_once()
    assert await pending(pool) == [*runs, busy]


async def test_background_job_retries_failed_runs_of_older_projection_versions(pool: Pool) -> None:
    [run] = await outdated(pool, 1)
    await make_pending(pool, run, "infinity")
    await Reprojector(pool).run_once()
    due = "SELECT root_plan_id FROM pending_run WHERE due_at <= now()"
    assert await rows(pool, due) == [(run,)]


async def test_reprojection_changes_costs_only_if_prices_changed(
    pool: Pool, reprojection: Reprojection
) -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
    usage = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 10}
    spans = spans_from(made(1, "chat gpt-4o", model | usage))
    await store_block(pool, spans)
    run = root_plan_id(spans[0].trace_id)
    await make_pending(pool, run)
    await reprojection.settle()
    costs = "SELECT cost_usd::float FROM think_act_record"
    [(listed,)] = await rows(pool, costs)
    assert listed is not None
    await rows(pool, "UPDATE think_act_record SET cost_usd = 5, digest = 1 RETURNING 1")
    found: list[Any] = []
    for with_prices in (False, True):
        assert await projected(reprojection, run, with_prices=with_prices) == set()
        found += await rows(pool, costs)
    assert found == [(5,), (listed,)]


async def test_reproject_applies_project_prices_to_stored_runs_if_prices_is_set(
    pool: Pool, reprojection: Reprojection
) -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "ward-llama"}
    usage = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 10}
    spans = spans_from(made(1, "chat ward-llama", model | usage))
    await store_block(pool, spans)
    run = root_plan_id(spans[0].trace_id)
    await make_pending(pool, run)
    await reprojection.settle()
    totals = "SELECT cost_usd::float, unpriced_calls FROM run"
    own = ModelPrices(ProjectPool(pool))
    found: list[Any] = await rows(pool, totals)

    await own.set_price(ModelPrice("ward-*", None, ALWAYS, Decimal(2), Decimal(100)))
    await projected(reprojection, run, with_prices=True)
    found += await rows(pool, totals)
    await own.delete("ward-*", None, ALWAYS)
    for with_prices in (False, True):
        await projected(reprojection, run, with_prices=with_prices)
        found += await rows(pool, totals)

    # 1,000 tokens at $2 a million and 10 at $100.
    assert found == [(0, 1), (0.003, 0), (0.003, 0), (0, 1)]


async def test_own_price_of_zero_makes_a_cost_known(pool: Pool, reprojection: Reprojection) -> None:
    own = ModelPrices(ProjectPool(pool))
    await own.set_price(ModelPrice("*", None, ALWAYS, Decimal(0), Decimal(0)))
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "ward-llama"}
    spans = spans_from(made(1, "chat ward-llama", model))
    await store_block(pool, spans)
    await make_pending(pool, root_plan_id(spans[0].trace_id))
    await reprojection.settle()
    assert await rows(pool, "SELECT cost_usd, unpriced_calls FROM run") == [(0, 0)]
