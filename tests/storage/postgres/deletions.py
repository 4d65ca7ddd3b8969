"""Runs to delete, and what is left of them in any table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from tests.contract.moments import Moments
from tests.storage.postgres.lock_waits import until_waiting
from tracer.records import new_id
from tracer.records.events import Event
from tracer.storage.postgres import Pool, ProjectPool, WriterOptions, postgres_writer

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def rich_run(calls: int = 3, **said: Any) -> tuple[Moments, list[Event]]:
    """Return a run that has everything that refers to anything, in circles where it may."""
    run, batch = Moments(), new_id()
    events: list[Event] = [
        run.plan_started(**said),
        run.step_started(),
        run.thought_started(messages="[]"),
        run.call_started(tool_call_id=batch, think_act_id=run.think_act, name="batch"),
        run.call_started(parent_tool_call_id=batch),
    ]
    for _ in range(calls):
        opener, sub_plan, step = new_id(), new_id(), new_id()
        events += [
            run.call_started(tool_call_id=opener, parent_tool_call_id=batch, name="check"),
            run.sub_plan_started(sub_plan, opener),
            run.step_started(plan=sub_plan, step_id=step),
            run.call_started(plan_id=sub_plan, step_id=step, tool_call_id=new_id()),
        ]
    return run, events


async def record(pool: Pool, *events: Event, at: datetime | None = None) -> None:
    """Record events at a moment of the server's clock; at its own without one."""
    project = ProjectPool(pool)
    options = WriterOptions(clock=lambda: at, lease_clock=lambda: at) if at else WriterOptions()
    answer = await postgres_writer(project, options).write(events)
    assert answer.refused == []


async def rows(pool: Pool, query: str, *values: Any) -> list[tuple[Any, ...]]:
    async with pool.connection() as connection:
        return await (await connection.execute(query.encode(), values)).fetchall()


async def left_of(pool: Pool, run_ids: Collection[UUID]) -> dict[str, int]:
    """Return how many rows each table has of runs, by the catalog: a new one is found by itself."""
    tables = await rows(
        pool,
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace"
        " AND a.attname = 'root_plan_id' AND c.relname <> 'run'",
    )
    found = {}
    for (table,) in tables:
        count = f"SELECT count(*) FROM {table} WHERE root_plan_id = ANY(%s)"
        [(found[table],)] = await rows(pool, count, list(run_ids))
    return found


async def tables_naming(pool: Pool, run_id: UUID) -> set[str]:
    """Return the tables that contain a run's id in any column."""
    tables = await rows(
        pool,
        "SELECT relname FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace",
    )
    found = set()
    for (table,) in tables:
        query = f"SELECT count(*) FROM {table} AS t WHERE strpos(t::text, %s) > 0"
        [(count,)] = await rows(pool, query, str(run_id))
        found |= {table} if count else set()
    return found


@asynccontextmanager
async def stopped_in_the_middle(
    url: str, run_id: UUID, deletion: Coroutine[Any, Any, object]
) -> AsyncIterator[None]:
    """Begin a deletion, and lend it while it waits for a lock of the run's root plan.

    At the end the deletion is interrupted, as if its process had died.
    """
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(
            "SELECT FROM plan_execution_record WHERE root_plan_id = %s AND plan_id = %s FOR UPDATE",
            [run_id, run_id],
        )
        deleting = asyncio.create_task(deletion)
        try:
            await until_waiting(url, 1)
            yield
        finally:
            deleting.cancel()
            with suppress(asyncio.CancelledError):
                await deleting
