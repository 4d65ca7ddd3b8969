"""Runs whose spans wait for a projector, and the projectors of a test's own database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from psycopg import AsyncConnection

from tests.otel.made_traces import body_of, make_span
from tests.storage.postgres.lock_waits import until, until_waiting
from tracer.clock import Clock, utc_now
from tracer.otel.otlp import decode_json
from tracer.records import new_id
from tracer.records.spans import TraceSpans
from tracer.storage.postgres import ProjectPool, WriterOptions, open_pool, postgres_writer
from tracer.storage.postgres.projection_rows import COUNT_PROJECTORS
from tracer.storage.postgres.watch import DUE_NOW, pending_message


def small_trace(name: str = "chat") -> TraceSpans:
    """Return one span of a new trace."""
    span = make_span(1, name, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    (trace,) = decode_json(body_of({**span, "traceId": new_id().hex})).traces
    return trace


def unread_trace(run: UUID, *numbers: int, scope: str = "acme.llm") -> TraceSpans:
    """Return spans of a run that have token counts, and that no rule reads."""
    spans = [
        make_span(number, "acme.request", {"acme.usage.input_tokens": 1}, scope=scope)
        for number in numbers
    ]
    (trace,) = decode_json(body_of(*({**span, "traceId": run.hex} for span in spans))).traces
    return trace


async def accept(url: str, *traces: TraceSpans, clock: Clock | None = None) -> list[UUID]:
    """Store traces as `store` does, notify projectors, and return the runs."""
    runs = await store(url, *traces, clock=clock)
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(*pending_message("test", runs))
    return runs


async def store(url: str, *traces: TraceSpans, clock: Clock | None = None) -> list[UUID]:
    """Store traces, and return the runs. No projector is notified.

    Args:
        url: The database.
        traces: The spans.
        clock: Due times are counted from its time; None: the database's clock.
    """
    async with open_pool(url) as pool:
        writer = postgres_writer(ProjectPool(pool), WriterOptions(lease_clock=clock))
        assert (await writer.write_spans(traces)).refused == []
    return sorted(UUID(bytes=trace.trace_id) for trace in traces)


@asynccontextmanager
async def stuck_run(url: str) -> AsyncIterator[UUID]:
    """Accept a trace whose projection waits for a lock while inside."""
    in_an_hour = utc_now() + timedelta(hours=1)
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        # Otherwise the projector may wait for the lock when it sums up the run.
        await connection.execute("UPDATE project SET summed_at = 'infinity'")
    (run,) = await accept(url, small_trace(), clock=lambda: in_an_hour)
    async with await AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT FROM run WHERE root_plan_id = %s FOR NO KEY UPDATE", [run])
        async with await AsyncConnection.connect(url, autocommit=True) as other:
            await other.execute("UPDATE pending_run SET due_at = now()")
            await other.execute(*pending_message(DUE_NOW, [run]))
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
