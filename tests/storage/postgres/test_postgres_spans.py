"""Storage of spans that is specific to Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from benchmarks.workload import bodies, trace
from tests.citus_databases import on_one_postgres
from tests.contract.stores import content
from tests.otel.captured import spans_of
from tests.otel.projections import project
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.recordings import record_from
from tests.sample_runs import sample_run
from tracer.otel.otlp.blocks import contents_of, pack_block
from tracer.records.record_classes import RECORDS
from tracer.records.spans import Span
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter, TraceReader

ONE_RUN = "pydantic-ai-default-single"
FIVE_RUNS = "langgraph-openinference-concurrent"


def _decoded(spans: Sequence[WireSpan]) -> list[Span]:
    return contents_of(map(pack_block, bodies([*spans], len(spans)))).spans


@on_one_postgres
async def test_the_number_of_statements_does_not_depend_on_spans_or_runs(
    writer: PostgresWriter, asked: list[str]
) -> None:
    await writer.write_spans(traces_of(spans_of(ONE_RUN)[:1]))  # reads the project's settings, too
    counts = set()
    for spans in (spans_of(ONE_RUN), spans_of(FIVE_RUNS), _decoded(trace(1, 600))):
        asked.clear()
        await writer.write_spans(traces_of(spans))
        # The project's settings are read again after two seconds.
        counts.add(len([each for each in asked if "FROM project " not in each]))

    assert len(counts) == 1


async def test_concurrent_writers_of_a_run_make_the_same_records_as_one(
    writer: PostgresWriter, pool: Pool, reader: PostgresReader
) -> None:
    spans = _decoded(trace(1, 600))
    other = postgres_writer(ProjectPool(pool))
    for start in range(0, len(spans), 100):
        turn = (writer, other)[start // 100 % 2]
        await turn.write_spans(traces_of(spans[start : start + 100]))
    await project_in(pool)

    assert await _records(reader) == _projected(spans)


async def test_rows_written_by_copy_equal_rows_written_by_upsert(
    writer: PostgresWriter, pool: Pool, reader: PostgresReader
) -> None:
    spans = _decoded(trace(2, 700))
    for start, end in ((0, 5), (5, 300), (250, 420), (420, 421), (421, 700)):
        await writer.write_spans(traces_of(spans[start:end]))
        await project_in(pool)

    assert await _records(reader) == _projected(spans)


@pytest.mark.parametrize(
    ("result", "is_cast"),
    [
        (r'{"name": "\u0000"}', False),
        ("[1e-16384]", False),
        ("[1e400]", True),
        ("[" * 6_000, False),
    ],
)
@pytest.mark.parametrize("first", [30, 100], ids=["merged", "copied"])
async def test_view_casts_texts_written_by_copy_and_upsert_equally(
    writer: PostgresWriter, pool: Pool, first: int, result: str, is_cast: bool
) -> None:
    spans = trace(3, 100)
    for span in spans:
        for attribute in span.attributes:
            if attribute.key == "gen_ai.tool.call.result":
                attribute.value.string_value = result
    decoded = _decoded(spans)
    for start in range(0, len(decoded), first):
        await writer.write_spans(traces_of(decoded[start : start + first]))
        await project_in(pool)

    async with pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(*), count(result), count(result_json), count(arguments_json)"
            " FROM trace.tool_calls WHERE reason IS DISTINCT FROM 'not_reached'"
        )
        calls, results, cast, arguments = await cursor.fetchone() or ()
    assert (results, cast, arguments) == (calls, calls if is_cast else 0, calls)


@pytest.mark.parametrize("source", ["events", "spans"])
async def test_lists_stored_as_null_are_shown_as_empty(
    writer: PostgresWriter, pool: Pool, source: str
) -> None:
    if source == "events":
        await writer.write(sample_run().events)
    else:
        await writer.write_spans(traces_of(_decoded(trace(4, 30))))
        await project_in(pool)

    async with pool.connection() as connection:
        for schema, empty in (("public", None), ("trace", [])):
            table, call = ("run", "act_tool_info") if empty is None else ("runs", "tool_calls")
            cursor = await connection.execute(
                "SELECT DISTINCT run.masked, call.masked, forged_arguments"
                f" FROM {schema}.{table} AS run JOIN {schema}.{call} AS call USING (root_plan_id)"
            )
            assert await cursor.fetchall() == [(empty, empty, empty)]


async def _records(reader: TraceReader) -> list[dict[str, Any]]:
    (run,) = (await reader.list_runs(RunFilter(), 10, None)).items
    whole = await reader.read_whole_run(run.root_plan_id)
    return [content(record) for records in whole.records.values() for record in records]


def _projected(spans: Sequence[Span]) -> list[dict[str, Any]]:
    found = project(spans)
    return [
        content(record_from(kind, (found.root_plan_id, record_id), fields))
        for kind in RECORDS
        for record_id, fields in sorted(found.records[kind].items())
    ]


async def test_repeated_spans_change_nothing(
    writer: PostgresWriter, pool: Pool, asked: list[str]
) -> None:
    traces = traces_of(spans_of(ONE_RUN))
    await writer.write_spans(traces)
    asked.clear()
    await writer.write_spans(traces)

    assert not [each for each in asked if each.lstrip().startswith(("UPDATE", "DELETE"))]
    assert not [each for each in asked if "INSERT INTO pending_run" in each]
