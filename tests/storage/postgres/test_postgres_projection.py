"""Reads of runs whose spans wait for a projector: which runs they wake it for, and the answer."""

from __future__ import annotations

import asyncio
from uuid import UUID

import psycopg
import pytest

from tests.otel.made_traces import agent, spans_from, tool
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.sample_runs import sample_run
from tests.storage.postgres.lock_waits import until
from tracer.otel.dialects import genai
from tracer.otel.projection import span_records
from tracer.records import Kind, new_id
from tracer.records.spans import Span
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool, postgres_writer
from tracer.storage.postgres.projection import PostgresProjection
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.spans import MOST_ATTEMPTS
from tracer.store import Behind

LONG = 60.0
"""More seconds than a projection takes on a slow machine."""


@pytest.fixture
def projection(pool: Pool) -> PostgresProjection:
    return PostgresProjection(ProjectPool(pool))


def trace(trace_id: bytes, calls: int = 1) -> list[Span]:
    spans = [agent(1, "planner"), *(tool(2 + number, "x", parent=1) for number in range(calls))]
    for span in spans:
        span["traceId"] = trace_id.hex()
    return spans_from(*spans)


def record_of(trace_id: bytes, span_id: int) -> tuple[Kind, UUID]:
    """Return the record that a span of `trace` becomes."""
    [spans] = traces_of(trace(trace_id))
    kind, record_id = span_records([spans.message])[span_id.to_bytes(8)]
    return kind, UUID(bytes=record_id)


async def accept(writer: PostgresWriter, calls: int = 1, trace_id: bytes | None = None) -> UUID:
    """Store a trace, and return its run."""
    run_id = new_id() if trace_id is None else UUID(bytes=trace_id)
    answer = await writer.write_spans(traces_of(trace(run_id.bytes, calls)))
    assert answer.refused == []
    return run_id


async def execute(url: str, statement: str, *parameters: object) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement.encode(), parameters)


async def woken(pool: Pool) -> list[UUID]:
    """Return the runs that reads have put at the front of the projectors' queue."""
    async with pool.connection() as connection:
        found = await connection.execute(
            "SELECT root_plan_id FROM pending_run WHERE due_at < '2000-01-01' ORDER BY 1"
        )
        return [run for (run,) in await found.fetchall()]


async def waiting(
    pool: Pool, projection: PostgresProjection, run: UUID
) -> asyncio.Task[Behind | None]:
    """Start a read of a run, and return when it waits for a projector."""

    async def is_woken() -> bool:
        return run in await woken(pool)

    reading = asyncio.create_task(projection.catch_up(Kind.RUN, run, seconds=LONG))
    await until(is_woken)
    assert not reading.done()
    return reading


async def test_read_of_a_pending_run_waits_until_a_projector_has_projected_it(
    projection: PostgresProjection, writer: PostgresWriter, reader: PostgresReader, pool: Pool
) -> None:
    run = await accept(writer, calls=3)
    readings = [await waiting(pool, projection, run) for _ in range(3)]

    await project_in(pool)

    assert await asyncio.gather(*readings) == [None, None, None]
    assert (await reader.read_run(run)).tool_calls == 3


async def test_read_does_not_wait_for_spans_that_arrive_later(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool, database_url: str
) -> None:
    run = await accept(writer)
    reading = await waiting(pool, projection, run)
    await accept(writer, calls=2, trace_id=run.bytes)
    await execute(database_url, "UPDATE run SET projected = 1")  # of the first spans

    assert await reading is None


async def test_reading_a_record_id_wakes_a_projector_for_its_run(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool
) -> None:
    runs = []
    for span_id in (1, 2):
        runs.append(await accept(writer))
        kind, record_id = record_of(runs[-1].bytes, span_id)
        assert await projection.catch_up(kind, record_id, seconds=0) is not None
        assert await woken(pool) == sorted(runs)


async def test_reading_a_custom_record_id_wakes_a_projector_for_its_run(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool, database_url: str
) -> None:
    run = await accept(writer)
    await project_in(pool)
    call = new_id()
    # As spans that carry records do.
    await execute(database_url, "UPDATE act_tool_info SET tool_call_id = %s", call)
    await accept(writer, calls=2, trace_id=run.bytes)

    await projection.catch_up(Kind.TOOL_CALL, call, seconds=0)

    assert await woken(pool) == [run]


async def test_runs_with_a_common_id_prefix_are_all_woken(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool
) -> None:
    first, second, other = (new_id().bytes for _ in range(3))
    alike = [first, first[:6] + second[6:]]
    for trace_id in (*alike, first[:5] + bytes([first[5] ^ 1]) + other[6:]):
        await accept(writer, trace_id=trace_id)
    kind, record_id = record_of(first, 2)

    await projection.catch_up(kind, record_id, seconds=0)

    assert await woken(pool) == sorted(UUID(bytes=each) for each in alike)


async def test_reading_a_root_plan_wakes_a_projector_only_for_its_run(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool
) -> None:
    first, second = new_id().bytes, new_id().bytes
    run = await accept(writer, trace_id=first)
    await accept(writer, trace_id=first[:6] + second[6:])

    await projection.catch_up(Kind.PLAN, run, seconds=0)

    assert await woken(pool) == [run]


async def test_read_without_pending_spans_takes_one_additional_query_or_two_for_a_sub_plan(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool, asked: list[str]
) -> None:
    run, events = await accept(writer), sample_run()
    await writer.write(events.events)
    await project_in(pool)
    for kind, record_id in (
        (Kind.RUN, run),
        (Kind.PLAN, run),
        (Kind.PLAN, events.sub_plans[0]),
        (Kind.THINK_ACT, events.think_act),
        (Kind.TOOL_CALL, new_id()),
    ):
        asked.clear()
        assert await projection.catch_up(kind, record_id) is None
        assert len(asked) == (2 if record_id in events.sub_plans else 1), kind


async def test_read_that_times_out_reports_pending_spans(
    projection: PostgresProjection, writer: PostgresWriter
) -> None:
    run = await accept(writer)

    behind = await projection.catch_up(Kind.RUN, run, seconds=0.1)

    assert behind is not None
    assert (behind.spans, behind.error) == (2, None)
    assert behind.since.tzinfo is not None


async def test_read_of_a_run_with_a_failed_attempt_does_not_make_it_due(
    projection: PostgresProjection, writer: PostgresWriter, pool: Pool, database_url: str
) -> None:
    run = await accept(writer)
    await execute(database_url, "UPDATE pending_run SET attempts = 1")

    assert await projection.catch_up(Kind.RUN, run, seconds=0) is not None

    assert await woken(pool) == []


async def test_reader_gets_the_error_of_a_failed_projection(
    projection: PostgresProjection,
    writer: PostgresWriter,
    reader: PostgresReader,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faulty(_: object) -> None:
        raise KeyError("patient 4711")

    monkeypatch.setattr(genai, "kind_of", faulty)
    run = await accept(writer)
    reading = await waiting(pool, projection, run)
    for _ in range(MOST_ATTEMPTS):
        await project_in(pool)

    behind = await reading

    assert behind is not None
    assert await projection.catch_up(Kind.RUN, run, seconds=LONG) == behind
    assert behind.error is not None
    assert "4711" not in behind.error
    assert (await reader.read_run(run)).tool_calls == 0


async def test_deleted_or_unknown_run_has_no_pending_spans(
    projection: PostgresProjection, writer: PostgresWriter
) -> None:
    run = await accept(writer)
    await writer.delete_run(run)

    assert await projection.catch_up(Kind.RUN, run) is None
    assert await projection.catch_up(Kind.STEP, new_id()) is None


async def test_pending_run_of_another_project_is_not_woken(
    projection: PostgresProjection, pool: Pool
) -> None:
    run = await accept(postgres_writer(ProjectPool(pool, 2)))

    assert await projection.catch_up(Kind.RUN, run) is None
    assert await projection.catch_up(Kind.PLAN, run) is None

    assert await woken(pool) == []
