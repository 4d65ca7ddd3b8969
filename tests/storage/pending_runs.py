"""Runs whose spans wait for a projector, and the projectors of a test's own database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, AsyncRawCursor

from tests.otel.made_traces import body_of, made
from tests.storage.lock_waits import until, until_waiting
from tracer.clock import utc_now
from tracer.ids import DEFAULT_PROJECT_ID, new_id
from tracer.otel.blocks import TraceSpans, block_key, pack_block
from tracer.otel.decode_json import decode_json
from tracer.storage import projection_statements as sql
from tracer.storage.notifications import WAKE_PROJECTORS
from tracer.storage.projector_process import COUNT_PROJECTORS


def small_trace() -> TraceSpans:
    """Return one span of a new trace."""
    span = made(1, "chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    (trace,) = decode_json(body_of({**span, "traceId": new_id().hex})).traces
    return trace


async def accept(url: str, *traces: TraceSpans, now: datetime | None = None) -> list[UUID]:
    """Store traces as the server does, at a moment; wake projectors, and return the runs."""
    runs = sorted(UUID(bytes=trace.trace_id) for trace in traces)
    messages = {UUID(bytes=trace.trace_id): trace.message for trace in traces}
    sizes = [len(messages[run]) for run in runs]
    ones = [1] * len(runs)
    async with await AsyncConnection.connect(url) as connection:
        cursor = AsyncRawCursor(connection)
        project = DEFAULT_PROJECT_ID
        await cursor.execute(sql.INSERT_RUNS, [project, now, runs])
        await cursor.execute(sql.LOCK_RUNS, [project, runs])
        keys = [block_key(messages[run]) for run in runs]
        bodies = [pack_block(messages[run]) for run in runs]
        given: list[Any] = [project, now, runs, keys, ones, sizes, bodies]
        await cursor.execute(sql.INSERT_BLOCKS, given)
        zeros = [0] * len(runs)
        given = [project, now, runs, zeros, ones, sizes, [None] * len(runs)]
        await cursor.execute(sql.ADD_PENDING, given)
        await connection.commit()
        await connection.execute(WAKE_PROJECTORS.encode())
    return runs


@asynccontextmanager
async def stuck_run(url: str) -> AsyncIterator[UUID]:
    """Accept a trace whose projection waits for a lock while inside."""
    in_an_hour = utc_now() + timedelta(hours=1)
    (run,) = await accept(url, small_trace(), now=in_an_hour)
    async with await AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT FROM run WHERE root_plan_id = %s FOR NO KEY UPDATE", [run])
        async with await AsyncConnection.connect(url, autocommit=True) as other:
            await other.execute("UPDATE pending_run SET due_at = now()")
            await other.execute(WAKE_PROJECTORS.encode())
        await until_waiting(url, 1)
        yield run


async def pending(url: str) -> list[UUID]:
    """Return the runs that wait for a projector."""
    async with await AsyncConnection.connect(url) as connection:
        cursor = await connection.execute("SELECT root_plan_id FROM pending_run ORDER BY 1")
        return [run for (run,) in await cursor.fetchall()]


async def living(url: str) -> int:
    """Return the number of projectors that are connected."""
    async with await AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(COUNT_PROJECTORS.encode())).fetchone()
    assert row is not None
    return int(row[0])


async def until_projected(url: str) -> None:
    """Return when no run waits for a projector."""
    await until(_is(lambda: pending(url), []))


async def until_living(url: str, number: int) -> None:
    """Return when so many projectors are connected."""
    await until(_is(lambda: living(url), number))


def _is(found: Callable[[], Awaitable[object]], wanted: object) -> Callable[[], Awaitable[bool]]:
    async def is_wanted() -> bool:
        return await found() == wanted

    return is_wanted
