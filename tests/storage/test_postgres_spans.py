"""What only Postgres can do wrong with spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from benchmarks.workload import bodies, trace
from tests.citus_databases import on_one_postgres
from tests.otel.captured import by_trace, spans_of
from tests.otel.decoded import spans_in
from tests.store_contract.stores import content
from tracer.otel.decode import decode_protobuf
from tracer.otel.spans import Span
from tracer.records import RECORDS, Kind
from tracer.storage.changed_hours import MARK_CALLS
from tracer.storage.engine import Pool
from tracer.storage.memory_store import MemoryStore
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool
from tracer.storage.tables import TABLES
from tracer.store import RunFilter, TraceReader

ONE_RUN = "pydantic-ai-default-single"
FIVE_RUNS = "langgraph-openinference-concurrent"


@pytest.fixture
def sent(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement from now on, COPY included."""
    copy = psycopg.AsyncCursor.copy

    def counted(self: Any, statement: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(str(statement))
        return copy(self, statement, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "copy", counted)
    return asked


def _decoded(spans: Sequence[WireSpan]) -> list[Span]:
    (body,) = bodies([*spans], len(spans))
    return spans_in(decode_protobuf(body))


@on_one_postgres
async def test_the_number_of_statements_does_not_depend_on_spans_or_runs(
    writer: PostgresWriter, sent: list[str]
) -> None:
    await writer.write_spans(spans_of(ONE_RUN)[:1])  # which reads the project's settings, too
    counts = []
    for spans in (spans_of(ONE_RUN), spans_of(FIVE_RUNS), _decoded(trace(1, 600))):
        sent.clear()
        await writer.write_spans(spans)
        # The project's settings are read again after two seconds; and captures are old by now.
        counts.append(
            len([each for each in sent if "FROM project " not in each and each != MARK_CALLS])
        )

    of_locks_spans_and_runs = 3
    assert counts == [of_locks_spans_and_runs + len(RECORDS)] * 3


@pytest.mark.thorough
async def test_a_trace_that_grows_is_not_read_again(
    writer: PostgresWriter, sent: list[str]
) -> None:
    spans = _decoded(trace(1, 600))
    await writer.write_spans(spans[:300])
    sent.clear()
    await writer.write_spans(spans[300:])

    assert not [statement for statement in sent if "FROM otel_span" in statement]


async def test_what_others_write_meanwhile_is_read(
    writer: PostgresWriter, pool: Pool, reader: PostgresReader
) -> None:
    spans = _decoded(trace(1, 600))
    other = PostgresWriter(ProjectPool(pool))
    for start in range(0, len(spans), 100):
        turn = (writer, other)[start // 100 % 2]
        await turn.write_spans(spans[start : start + 100])

    assert await _records(reader) == await _records_in_memory(spans)


async def test_rows_by_copy_are_those_of_the_statements_that_merge(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    spans = _decoded(trace(2, 700))
    for start, end in ((0, 5), (5, 300), (250, 420), (420, 421), (421, 700)):
        await writer.write_spans(spans[start:end])

    assert await _records(reader) == await _records_in_memory(spans)


@pytest.mark.parametrize(
    ("result", "is_cast"),
    [(r'{"name": "\u0000"}', False), ("[1e-16384]", False), ("[1e400]", True), ("[" * 600, False)],
)
@pytest.mark.parametrize("first", [3, 100], ids=["merged", "copied"])
async def test_view_casts_copied_and_merged_texts_alike(
    writer: PostgresWriter, pool: Pool, first: int, result: str, is_cast: bool
) -> None:
    spans = trace(3, 100)
    for span in spans:
        for attribute in span.attributes:
            if attribute.key == "gen_ai.tool.call.result":
                attribute.value.string_value = result
    decoded = _decoded(spans)
    for start in range(0, len(decoded), first):
        answer = await writer.write_spans(decoded[start : start + first])
        assert answer.refused == []

    async with pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(*), count(result), count(result_json), count(arguments_json)"
            " FROM trace.tool_calls"
        )
        calls, results, cast, arguments = await cursor.fetchone() or ()
    assert (results, cast, arguments) == (calls, calls if is_cast else 0, calls)


@pytest.mark.thorough
async def test_what_is_known_of_a_run_does_not_outlive_its_rows(
    writer: PostgresWriter, pool: Pool, reader: PostgresReader
) -> None:
    spans = _decoded(trace(4, 200))
    await writer.write_spans(spans[:150])
    async with pool.connection() as connection:  # as a database that was restored
        await connection.execute("DELETE FROM otel_span WHERE name LIKE 'chat%'")
        await connection.execute("TRUNCATE think_act_record CASCADE")
    answer = await writer.write_spans(spans)

    assert (answer.stored, answer.refused) == (200, [])


async def _records(reader: TraceReader) -> list[dict[str, Any]]:
    (run,) = (await reader.list_runs(RunFilter(), 10, None)).items
    whole = await reader.read_whole_run(run.root_plan_id)
    return [content(record) for records in whole.records.values() for record in records]


async def _records_in_memory(spans: Sequence[Span]) -> list[dict[str, Any]]:
    store = MemoryStore()
    await store.write_spans(spans)
    return await _records(store)


@pytest.mark.thorough
async def test_spans_that_came_before_cost_no_projection(
    writer: PostgresWriter, sent: list[str]
) -> None:
    await writer.write_spans(spans_of(ONE_RUN))
    sent.clear()
    await writer.write_spans(spans_of(ONE_RUN))

    # The project's settings are read again after two seconds.
    assert len([each for each in sent if "FROM project " not in each]) == 1


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
