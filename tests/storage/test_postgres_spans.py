"""What only Postgres can do wrong with spans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.otel.captured import by_trace, spans_of
from tracer.otel.spans import Span
from tracer.records import Kind
from tracer.storage.engine import Pool
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.tables import TABLES
from tracer.store import RunFilter

ONE_RUN = "pydantic-ai-default-single"
FIVE_RUNS = "langgraph-openinference-concurrent"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that a raw cursor is given from now on."""
    statements: list[str] = []
    execute = psycopg.AsyncRawCursor.execute

    async def counted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(str(query))
        return await execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncRawCursor, "execute", counted)
    return statements


async def test_the_number_of_statements_does_not_depend_on_spans_or_runs(
    writer: PostgresWriter, sent: list[str]
) -> None:
    await writer.write_spans(spans_of(ONE_RUN))
    of_one_run = len(sent)
    sent.clear()
    await writer.write_spans(spans_of(FIVE_RUNS))

    assert len(sent) == of_one_run == 12


async def test_spans_that_came_before_cost_no_projection(
    writer: PostgresWriter, sent: list[str]
) -> None:
    await writer.write_spans(spans_of(ONE_RUN))
    sent.clear()
    await writer.write_spans(spans_of(ONE_RUN))

    assert len(sent) == 2


async def test_spans_are_kept_as_they_came(
    writer: PostgresWriter, pool: Pool, reader: PostgresReader
) -> None:
    spans = spans_of(FIVE_RUNS)
    await writer.write_spans(spans)

    async with pool.connection() as connection:
        cursor = await connection.execute("SELECT span_id, body FROM otel_span")
        kept: dict[bytes, bytes] = dict(await cursor.fetchall())
    assert kept == {span.span_id: span.body for span in spans}

    for trace_id in by_trace(spans):
        run = next(
            run
            for run in (await reader.list_runs(RunFilter(), 10, None)).items
            if run.root_plan_id.bytes == trace_id
        )
        await writer.delete_run(run.root_plan_id)
    async with pool.connection() as connection:
        for table in ("otel_span", *(TABLES[kind] for kind in Kind if kind is not Kind.RUN)):
            found = await connection.execute(f"SELECT count(*) FROM {table}".encode())
            assert await found.fetchone() == (0,), table


def _with_tokens(span: Span, tokens: int) -> Span:
    message = ResourceSpans.FromString(span.body)
    for attribute in message.scope_spans[0].spans[0].attributes:
        if attribute.key == "gen_ai.usage.input_tokens":
            attribute.value.int_value = tokens
    return replace(span, body=bytes(message.SerializeToString(deterministic=True)))


async def test_a_span_that_makes_a_run_unstorable_is_refused_alone(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    spans = [
        _with_tokens(span, 2**63 - 1)
        if span.attributes.get("gen_ai.operation.name") == "chat"
        else span
        for span in spans_of(ONE_RUN)
    ]

    answer = await writer.write_spans(spans)

    assert {refusal.code for refusal in answer.refused} <= {"not_storable"}
    assert answer.stored + len(answer.refused) == len(spans)
    (run,) = (await reader.list_runs(RunFilter(), 10, None)).items
    assert run.tool_calls == 8
