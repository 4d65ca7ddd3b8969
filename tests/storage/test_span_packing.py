"""Packing and merging of stored spans: readers see the same spans before and after."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.made_traces import agent, made, spans_from, tool
from tests.projecting import project_in
from tests.storage.deletions import record, rich_run, rows
from tests.storage.stored_spans import (
    LONG_AGO,
    make_pending,
    store_block,
    store_rows,
    store_run,
)
from tests.trees import read_tree
from tracer.lineage.tree import Payloads
from tracer.otel.otlp.blocks import traces_of, unpack_block
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.otel.otlp.spans import Span
from tracer.records.project_settings import KeptSpans
from tracer.records.record_classes import Kind
from tracer.storage.postgres.connection.pool import Pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.jobs.span_packer import SpanPacker
from tracer.storage.postgres.projects.projects import SettingsOfProject
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.spans.packing import SpanPacking
from tracer.storage.postgres.writer import PostgresWriter

SMALL = 2_000
"""Bytes of a block that holds a few small spans."""

_CLAIM = "SELECT pg_advisory_lock(hashtextextended(%s::uuid::text, 1))"


async def all_of(work: AsyncGenerator[UUID, None]) -> list[UUID]:
    async with aclosing(work) as runs:
        return [run async for run in runs]


def trace(count: int, *, name: str = "a span", failed: str | None = None) -> list[Span]:
    return spans_from(
        *(
            made(each + 1, name, {"n": each}, at=(each, each + 1), failed=failed)
            for each in range(count)
        )
    )


async def blocks(pool: Pool) -> list[tuple[Any, ...]]:
    return await rows(pool, "SELECT spans, size, recorded_at FROM otel_block ORDER BY key")


async def state(pool: Pool) -> list[tuple[Any, ...]]:
    """Return what neither packing nor merging may change."""
    return await rows(
        pool, "SELECT root_plan_id, revision, projected, recorded_at FROM run ORDER BY root_plan_id"
    )


async def test_packing_keeps_every_span_and_tree_of_the_captures(
    pool: Pool, reader: PostgresReader
) -> None:
    traces = by_trace(span for name in NAMES[:6] for span in spans_of(name))
    run, events = rich_run()
    await record(pool, *events)
    await rows(pool, "UPDATE run SET source = 'spans' RETURNING 1")
    for spans in traces.values():
        await store_rows(pool, spans)
    await store_rows(pool, [_of_run(span, run.root) for span in trace(5)])
    runs = [*map(root_plan_id, traces), run.root]

    async def shown() -> list[Any]:
        spans = [[asdict(span) for span in await reader.read_spans(each)] for each in runs]
        whole = [[span.body for span in (await reader.read_whole_run(each)).spans] for each in runs]
        return [spans, whole, await read_tree(reader, run.root, Payloads.FULL), await state(pool)]

    before = await shown()
    packing = SpanPacking(ProjectPool(pool), block_bytes=50_000)
    assert await packing.count() == len(runs)
    packed = []
    async with aclosing(packing.pack()) as working:
        async for each in working:
            packed.append(each)
            if len(packed) == 2:
                assert await shown() == before
                assert await packing.count() == len(runs) - 2

    assert sorted(packed) == sorted(runs)
    assert await shown() == before
    assert await rows(pool, "SELECT count(*) FROM otel_span") == [(0,)]
    sums = "SELECT root_plan_id, sum(size), max(size) FROM otel_block GROUP BY root_plan_id"
    stored = {run: (total, largest) for run, total, largest in await rows(pool, sums)}
    sizes = dict(await rows(pool, "SELECT root_plan_id, span_bytes FROM run"))
    assert {run: total for run, (total, _) in stored.items()} == sizes
    assert await all_of(packing.pack()) == []


def _of_run(span: Span, run: UUID) -> Span:
    """Return a span of another trace."""
    body = span.body.replace(span.trace_id, run.bytes)
    return Span(
        **{
            **{name: getattr(span, name) for name in Span.__slots__},
            "trace_id": run.bytes,
            "body": body,
        }
    )


async def test_large_run_is_packed_into_blocks_of_bounded_size(
    pool: Pool, reader: PostgresReader
) -> None:
    spans = [*trace(200), *spans_from(made(900, "x" * 3 * SMALL))]
    await store_rows(pool, spans)
    before = await reader.read_spans(root_plan_id(spans[0].trace_id))

    await all_of(SpanPacking(ProjectPool(pool), block_bytes=SMALL).pack())

    sizes = sorted(size for _, size, _ in await blocks(pool))
    assert len(sizes) > 5
    assert [size for size in sizes if size > SMALL] == sizes[-1:]
    assert await reader.read_spans(root_plan_id(spans[0].trace_id)) == before


async def test_packing_skips_deleted_and_claimed_runs(pool: Pool, database_url: str) -> None:
    spans = trace(3)
    run = root_plan_id(spans[0].trace_id)
    await store_rows(pool, spans)
    packing = SpanPacking(ProjectPool(pool))

    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        await holder.execute(_CLAIM, [run])
        assert await all_of(packing.pack()) == []
        # A closed connection keeps its locks until its backend has ended.
        await holder.execute("SELECT pg_advisory_unlock_all()")
    await rows(pool, "UPDATE run SET deleted_at = now() RETURNING 1")
    assert await all_of(packing.pack()) == []
    assert await rows(pool, "SELECT count(*) FROM otel_span") == [(3,)]

    await rows(pool, "UPDATE run SET deleted_at = NULL RETURNING 1")
    assert await all_of(packing.pack()) == [run]


async def test_packing_keeps_spans_of_rows_and_of_later_blocks(
    pool: Pool, reader: PostgresReader
) -> None:
    old, new = trace(6), trace(9, name="renamed", failed="later")
    await store_rows(pool, old)
    await store_block(pool, new[3:], LONG_AGO + timedelta(days=1))
    run = root_plan_id(old[0].trace_id)
    before = await reader.read_spans(run)
    assert len(before) == 9
    some = [new[4].span_id, new[8].span_id, b"nothing."]
    assert [span.span_id for span in await reader.read_spans(run, some)] == some[:2]

    await all_of(SpanPacking(ProjectPool(pool)).pack())

    assert await reader.read_spans(run) == before
    assert {recorded_at for _, _, recorded_at in await blocks(pool)} == {
        LONG_AGO,
        LONG_AGO + timedelta(days=1),
    }


async def settle(pool: Pool, at: str = "-1 second") -> None:
    await rows(pool, f"UPDATE run SET settle_at = now() + interval '{at}' RETURNING 1")


@pytest.mark.parametrize("part_bytes", [SMALL, 10**9])
async def test_merging_span_blocks_keeps_every_span(
    pool: Pool, reader: PostgresReader, part_bytes: int
) -> None:
    versions = [*trace(40), *trace(40, name="renamed", failed="later"), *trace(10)]
    random.Random(3).shuffle(versions)
    for number in range(0, len(versions), 4):
        at = LONG_AGO + timedelta(minutes=number)
        await store_block(pool, versions[number : number + 4], at)
    run = root_plan_id(versions[0].trace_id)
    await settle(pool)
    before, unchanged = await reader.read_spans(run), await state(pool)
    count = len(await blocks(pool))

    packing = SpanPacking(ProjectPool(pool), block_bytes=SMALL, part_bytes=part_bytes)
    assert await all_of(packing.merge()) == [run]

    assert await reader.read_spans(run) == before
    assert await state(pool) == unchanged
    merged = await blocks(pool)
    assert len(merged) < count
    assert max(size for _, size, _ in merged) <= SMALL
    assert min(recorded_at for _, _, recorded_at in merged) == LONG_AGO
    if part_bytes > SMALL:
        assert sum(spans for spans, _, _ in merged) == len(before)
    assert await rows(pool, "SELECT settle_at, span_bytes FROM run") == [
        (None, sum(size for _, size, _ in merged))
    ]


async def test_merging_span_blocks_twice_changes_nothing(pool: Pool) -> None:
    for each in trace(30):
        await store_block(pool, [each])
    packing = SpanPacking(ProjectPool(pool), block_bytes=SMALL)
    contents = "SELECT key, xmin::text FROM otel_block ORDER BY key"
    found = []
    for _ in range(2):
        await settle(pool)
        await all_of(packing.merge())
        found.append(await rows(pool, contents))
    assert found[0] == found[1]


async def test_pending_claimed_deleted_or_early_runs_are_not_merged(
    pool: Pool, database_url: str
) -> None:
    spans = trace(2)
    run = root_plan_id(spans[0].trace_id)
    for each in spans:
        await store_block(pool, [each])
    packing = SpanPacking(ProjectPool(pool))
    await settle(pool, "1 hour")
    assert await all_of(packing.merge()) == []

    await settle(pool)
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        await holder.execute(_CLAIM, [run])
        assert await all_of(packing.merge()) == []

    await make_pending(pool, run)
    assert await all_of(packing.merge()) == []
    await rows(pool, "DELETE FROM pending_run RETURNING 1")
    await rows(pool, "UPDATE run SET deleted_at = now() RETURNING 1")
    assert await all_of(packing.merge()) == []

    await rows(pool, "UPDATE run SET deleted_at = NULL RETURNING 1")
    assert await all_of(packing.merge()) == [run]
    assert [spans for spans, _, _ in await blocks(pool)] == [2]


async def test_spans_of_one_resource_share_it_in_a_block(pool: Pool) -> None:
    await store_rows(pool, trace(50))
    bodies = await rows(pool, "SELECT sum(octet_length(body)) FROM otel_span")
    await all_of(SpanPacking(ProjectPool(pool)).pack())
    [(body, size)] = await rows(pool, "SELECT body, size FROM otel_block")
    assert len(unpack_block(body)) == size < bodies[0][0]


async def test_run_without_spans_has_no_span_blocks(pool: Pool, reader: PostgresReader) -> None:
    run = UUID(int=7)
    await store_run(pool, run)
    await settle(pool)
    assert await reader.read_spans(run) == []
    assert await all_of(SpanPacking(ProjectPool(pool)).merge()) == [run]
    assert await rows(pool, "SELECT settle_at, span_bytes FROM run") == [(None, 0)]


async def test_damaged_block_does_not_stop_the_other_runs(pool: Pool) -> None:
    first, second = trace(2), [_of_run(span, UUID(int=2**127)) for span in trace(2)]
    for each in (*first, *second):
        await store_block(pool, [each])
    await settle(pool)
    damage = "UPDATE otel_block SET body = '\\x00' WHERE root_plan_id = %s RETURNING 1"
    await rows(pool, damage, root_plan_id(first[0].trace_id))

    await SpanPacker(pool).run_once()

    count = "SELECT root_plan_id, count(*) FROM otel_block GROUP BY root_plan_id"
    first_run, second_run = (root_plan_id(spans[0].trace_id) for spans in (first, second))
    assert dict(await rows(pool, count)) == {first_run: 2, second_run: 1}
    assert await rows(pool, "SELECT FROM run WHERE settle_at IS NOT NULL") == []


async def test_thinning_keeps_the_records_and_removes_other_spans(
    pool: Pool, reader: PostgresReader
) -> None:
    mine = spans_from(agent(1, "planner"), made(2, "SELECT", parent=1), tool(3, "m", parent=1))
    other = [_of_run(span, UUID(int=7)) for span in trace(3)]
    writer = PostgresWriter(ProjectPool(pool))
    await SettingsOfProject(ProjectPool(pool)).change(keep_spans=KeptSpans.AGENT)
    await writer.write_spans(traces_of([*mine, *other]))
    await project_in(pool)
    run = root_plan_id(mine[0].trace_id)
    before = await read_tree(reader, run, Payloads.FULL)
    now = datetime.now(UTC) + timedelta(days=40_000)

    packing = SpanPacking(ProjectPool(pool), lambda: now, keep=KeptSpans.AGENT)
    assert sorted(await all_of(packing.merge())) == sorted([run, UUID(int=7)])

    spans = await reader.read_spans(run)
    assert [span.name for span in spans] == ["invoke_agent planner", "execute_tool m"]
    assert await read_tree(reader, run, Payloads.FULL) == before
    assert (await reader.read_revision(Kind.RUN, run)).removed_spans == 1
    assert (packing.removed_spans, packing.removed_runs) == (4, 1)
    assert await rows(pool, "SELECT root_plan_id FROM run") == [(run,)]
    assert await rows(pool, "SELECT count(*) FROM plan_execution_record") == [(1,)]
    again = await writer.write_spans(traces_of(other))
    assert again.refused == []
