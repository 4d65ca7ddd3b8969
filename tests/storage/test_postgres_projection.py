"""Projecting the pending spans of a run before the run is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.otel.made_traces import agent, spans_from, tool
from tests.sample_runs import sample_run
from tracer.otel.dialects import genai
from tracer.otel.otlp.blocks import traces_of
from tracer.otel.otlp.spans import ReadableSpan, Span
from tracer.otel.projection.project import place_spans
from tracer.records.ids import new_id
from tracer.records.record_classes import Kind
from tracer.storage.postgres.connection.notifications import LOOK_NOW, PENDING_CHANNEL
from tracer.storage.postgres.connection.pool import Pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.spans import projection_sql as sql
from tracer.storage.postgres.spans.catch_up import LocalProjectors, PostgresProjection
from tracer.storage.postgres.writer import PostgresWriter

LONG = 60.0
"""More seconds than a projection takes on a slow machine."""


@pytest.fixture
async def projection(pool: Pool, database_url: str) -> AsyncIterator[PostgresProjection]:
    async with LocalProjectors(database_url) as projectors:
        yield PostgresProjection(ProjectPool(pool), projectors)


@pytest.fixture
def projections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The groups of runs whose blocks a projector of this process reads from now on."""
    groups: list[Any] = []
    execute = psycopg.RawCursor.execute

    def noted(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        if query == sql.READ_BLOCKS:
            groups.append(params[1])
        return execute(self, query, params, **options)

    monkeypatch.setattr(psycopg.RawCursor, "execute", noted)
    return groups


def trace(trace_id: bytes, calls: int = 1) -> list[Span]:
    spans = [agent(1, "planner"), *(tool(2 + number, "x", parent=1) for number in range(calls))]
    for span in spans:
        span["traceId"] = trace_id.hex()
    return spans_from(*spans)


def record_of(trace_id: bytes, span_id: int) -> tuple[Kind, UUID]:
    """Return the record that a span of `trace` becomes."""
    [spans] = traces_of(trace(trace_id))
    kind, record_id = place_spans([spans.message])[span_id.to_bytes(8)]
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


async def woken(url: str, listening: asyncio.Event) -> None:
    """Return when a projector would be woken."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"LISTEN {PENDING_CHANNEL}")
        listening.set()
        async for notification in connection.notifies():
            if notification.payload == LOOK_NOW:
                return


async def until_it_wakes_projectors(url: str, reading: Any) -> asyncio.Task[Any]:
    """Start `reading`, and return it when it has woken the projectors and waits for them."""
    listening = asyncio.Event()
    hearing = asyncio.create_task(woken(url, listening))
    await listening.wait()
    task = asyncio.create_task(reading)
    await hearing
    assert not task.done()
    return task


async def test_run_is_complete_after_catching_up(
    projection: PostgresProjection, writer: PostgresWriter, reader: PostgresReader
) -> None:
    run = await accept(writer, calls=3)
    assert (await reader.read_run(run)).tool_calls == 0

    assert await projection.catch_up(Kind.RUN, run, seconds=LONG) is None

    assert (await reader.read_run(run)).tool_calls == 3


async def test_reading_a_record_id_projects_its_pending_run(
    projection: PostgresProjection, writer: PostgresWriter, reader: PostgresReader
) -> None:
    for span_id in (1, 2):
        run = await accept(writer)
        kind, record_id = record_of(run.bytes, span_id)

        assert await projection.catch_up(kind, record_id, seconds=LONG) is None

        assert (await reader.read_run(run)).tool_calls == 1


async def test_reading_a_custom_record_id_projects_its_pending_run(
    projection: PostgresProjection,
    writer: PostgresWriter,
    database_url: str,
    projections: list[Any],
) -> None:
    run = await accept(writer)
    await projection.catch_up(Kind.RUN, run, seconds=LONG)
    call = new_id()
    # As spans that carry records do.
    await execute(database_url, "UPDATE act_tool_info SET tool_call_id = %s", call)
    await accept(writer, calls=2, trace_id=run.bytes)

    assert await projection.catch_up(Kind.TOOL_CALL, call, seconds=LONG) is None

    assert projections == [[run], [run]]


async def test_runs_with_a_common_id_prefix_are_all_projected(
    projection: PostgresProjection, writer: PostgresWriter, projections: list[Any]
) -> None:
    first, second, other = (new_id().bytes for _ in range(3))
    alike = [first, first[:6] + second[6:]]
    for trace_id in (*alike, first[:5] + bytes([first[5] ^ 1]) + other[6:]):
        await accept(writer, trace_id=trace_id)
    kind, record_id = record_of(first, 2)

    assert await projection.catch_up(kind, record_id, seconds=LONG) is None

    assert sorted(projections) == sorted([UUID(bytes=each)] for each in alike)


async def test_reading_a_root_plan_projects_only_its_run(
    projection: PostgresProjection, writer: PostgresWriter, projections: list[Any]
) -> None:
    first, second = new_id().bytes, new_id().bytes
    run = await accept(writer, trace_id=first)
    await accept(writer, trace_id=first[:6] + second[6:])

    assert await projection.catch_up(Kind.PLAN, run, seconds=LONG) is None

    assert projections == [[run]]


async def test_read_without_pending_spans_takes_one_additional_query(
    projection: PostgresProjection, writer: PostgresWriter, asked: list[str]
) -> None:
    run, events = await accept(writer), sample_run()
    await writer.write(events.events)
    await projection.catch_up(Kind.RUN, run, seconds=LONG)
    for kind, record_id in (
        (Kind.RUN, run),
        (Kind.PLAN, run),
        (Kind.PLAN, events.sub_plans[0]),
        (Kind.THINK_ACT, events.think_act),
        (Kind.TOOL_CALL, new_id()),
    ):
        asked.clear()
        assert await projection.catch_up(kind, record_id) is None
        assert len(asked) == 1, kind


async def test_concurrent_readers_share_one_projection(
    projection: PostgresProjection,
    writer: PostgresWriter,
    reader: PostgresReader,
    projections: list[Any],
) -> None:
    run = await accept(writer, calls=100)
    before = (await reader.read_run(run)).revision

    answers = await asyncio.gather(
        *(projection.catch_up(Kind.RUN, run, seconds=LONG) for _ in range(20))
    )

    assert answers == [None] * 20
    assert projections == [[run]]
    assert (await reader.read_run(run)).revision == before + 1


async def test_more_runs_than_projectors_are_all_projected(
    projection: PostgresProjection, writer: PostgresWriter, reader: PostgresReader
) -> None:
    runs = [await accept(writer) for _ in range(8)]

    answers = await asyncio.gather(
        *(projection.catch_up(Kind.RUN, run, seconds=LONG) for run in runs)
    )

    assert answers == [None] * 8
    assert {(await reader.read_run(run)).tool_calls for run in runs} == {1}


@pytest.mark.parametrize("state", ["large", "with open attempts"])
async def test_large_or_already_attempted_run_is_left_to_a_projector(
    projection: PostgresProjection,
    writer: PostgresWriter,
    database_url: str,
    projections: list[Any],
    state: str,
) -> None:
    run = await accept(writer, calls=1000 if state == "large" else 1)
    if state != "large":
        await execute(database_url, "UPDATE pending_run SET attempts = 1")
    reading = await until_it_wakes_projectors(
        database_url, projection.catch_up(Kind.RUN, run, seconds=LONG)
    )
    assert projections == []

    await projection.project_due(datetime(2100, 1, 1, tzinfo=UTC))

    assert await reading is None


async def test_reading_a_large_pending_run_makes_it_due_immediately(
    projection: PostgresProjection, writer: PostgresWriter, database_url: str
) -> None:
    run = await accept(writer, calls=1000)
    await execute(database_url, "UPDATE pending_run SET due_at = now() + interval '1 hour'")
    reading = await until_it_wakes_projectors(
        database_url, projection.catch_up(Kind.RUN, run, seconds=LONG)
    )

    assert await projection.project_due() == 1

    assert await reading is None


async def test_read_reports_a_run_with_over_5000_pending_spans_as_behind(
    projection: PostgresProjection, writer: PostgresWriter, database_url: str
) -> None:
    run = await accept(writer, calls=5000)

    behind = await projection.catch_up(Kind.RUN, run, seconds=LONG)

    assert behind is not None
    assert (behind.spans, behind.error) == (5001, None)
    reading = await until_it_wakes_projectors(
        database_url, projection.catch_up(Kind.RUN, run, seconds=LONG, any_size=True)
    )
    await projection.project_due(datetime(2100, 1, 1, tzinfo=UTC))
    assert await reading is None


async def test_read_that_times_out_reports_pending_spans(
    projection: PostgresProjection, writer: PostgresWriter, database_url: str
) -> None:
    run = await accept(writer)
    await execute(database_url, "UPDATE pending_run SET attempts = 1")

    behind = await projection.catch_up(Kind.RUN, run, seconds=0)

    assert behind is not None
    assert (behind.spans, behind.error) == (2, None)
    assert behind.since.tzinfo is not None


async def test_run_claimed_by_another_process_is_not_projected(
    projection: PostgresProjection,
    writer: PostgresWriter,
    database_url: str,
    projections: list[Any],
) -> None:
    run = await accept(writer)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        claim = "SELECT pg_advisory_lock(hashtextextended(%s::text, 1))"
        await other.execute(claim, [run])
        assert await projection.catch_up(Kind.RUN, run, seconds=0) is not None
        waiting = asyncio.create_task(projection.catch_up(Kind.RUN, run, seconds=LONG))
    assert await waiting is None
    assert projections == [[run]]


async def test_connection_lost_before_a_catch_up_is_replaced(
    projection: PostgresProjection,
    writer: PostgresWriter,
    reader: PostgresReader,
    database_url: str,
) -> None:
    run = await accept(writer)
    await projection.catch_up(Kind.RUN, run, seconds=LONG)
    await accept(writer, calls=2, trace_id=run.bytes)
    await execute(
        database_url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )

    assert await projection.catch_up(Kind.RUN, run, seconds=LONG) is None

    assert (await reader.read_run(run)).tool_calls == 2


async def test_reader_gets_the_error_of_a_failed_projection(
    projection: PostgresProjection,
    writer: PostgresWriter,
    reader: PostgresReader,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faulty(span: ReadableSpan) -> Any:
        raise KeyError("patient 4711")

    monkeypatch.setattr(genai, "kind_of", faulty)
    run = await accept(writer)
    reading = await until_it_wakes_projectors(
        database_url, projection.catch_up(Kind.RUN, run, seconds=LONG)
    )
    for day in range(1, sql.MOST_ATTEMPTS):
        assert await projection.project_due(datetime(2100, 1, day, tzinfo=UTC)) == 0

    behind = await reading

    assert behind is not None
    assert await projection.catch_up(Kind.RUN, run, seconds=LONG, any_size=True) == behind
    assert behind.error is not None
    assert "4711" not in behind.error
    assert (await reader.read_run(run)).tool_calls == 0


async def test_deleted_or_unknown_run_has_no_pending_spans(
    projection: PostgresProjection, writer: PostgresWriter
) -> None:
    run = await accept(writer, calls=5000)
    await writer.delete_run(run)

    assert await projection.catch_up(Kind.RUN, run) is None
    assert await projection.catch_up(Kind.STEP, new_id()) is None


async def test_pending_run_of_another_project_is_not_projected(
    projection: PostgresProjection, pool: Pool, projections: list[Any]
) -> None:
    run = await accept(PostgresWriter(ProjectPool(pool, 2)))

    assert await projection.catch_up(Kind.RUN, run) is None
    assert await projection.catch_up(Kind.PLAN, run) is None

    assert projections == []
