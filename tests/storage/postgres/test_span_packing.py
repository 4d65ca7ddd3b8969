"""Merging of stored spans: readers see the same spans before and after."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.otel.made_traces import make_span, spans_from
from tests.storage.postgres.deletions import rows
from tests.storage.postgres.stored_spans import (
    LONG_AGO,
    make_pending,
    store_block,
    store_run,
)
from tests.stored import read_spans
from tracer.otel.otlp.spans import root_plan_id
from tracer.records.spans import Span
from tracer.storage.postgres import Pool, ProjectPool
from tracer.storage.postgres.jobs import SpanPacker
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.spans import SpanPacking

SMALL = 10_000
"""The weight of a block that holds a few small spans."""

_CLAIM = "SELECT pg_advisory_lock(hashtextextended(%s::uuid::text, 1))"


async def all_of(work: AsyncGenerator[UUID, None]) -> list[UUID]:
    async with aclosing(work) as runs:
        return [run async for run in runs]


def trace(count: int, *, name: str = "a span", failed: str | None = None) -> list[Span]:
    return spans_from(
        *(
            make_span(each + 1, name, {"n": each}, at=(each, each + 1), failed=failed)
            for each in range(count)
        )
    )


async def blocks(pool: Pool) -> list[tuple[Any, ...]]:
    return await rows(pool, "SELECT spans, size, recorded_at FROM otel_block ORDER BY key")


async def state(pool: Pool) -> list[tuple[Any, ...]]:
    """Return what merging must not change."""
    return await rows(
        pool, "SELECT root_plan_id, revision, projected, recorded_at FROM run ORDER BY root_plan_id"
    )


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
    before, unchanged = await read_spans(reader, run), await state(pool)
    count = len(await blocks(pool))

    packing = SpanPacking(ProjectPool(pool), block_bytes=SMALL, part_bytes=part_bytes)
    assert await all_of(packing.merge()) == [run]

    assert await read_spans(reader, run) == before
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


async def test_run_without_spans_has_no_span_blocks(pool: Pool, reader: PostgresReader) -> None:
    run = UUID(int=7)
    await store_run(pool, run)
    await settle(pool)
    assert await read_spans(reader, run) == []
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
