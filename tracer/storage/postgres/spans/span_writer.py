"""Accepting spans in Postgres: they are stored as blocks, and their runs become pending.

docs/explanation/projection.md describes the locks and what the commit relies on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncRawCursor

from tracer.clock import Clock
from tracer.otel.otlp.blocks import block_key, pack_block
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.records.spans import TraceSpans
from tracer.storage.postgres.connection.citus import by_shard, write_parts
from tracer.storage.postgres.connection.pool import PoolConnection
from tracer.storage.postgres.connection.project_session import (
    ProjectPool,
    Statement,
    committed,
    transaction_in,
)
from tracer.storage.postgres.connection.write_errors import Numbered, retry_on_conflict
from tracer.storage.postgres.spans.accept_sql import (
    ADD_PENDING,
    FIND_BLOCKS,
    GROW_RUNS,
    INSERT_BLOCKS,
    INSERT_RUNS,
    LOCK_RUNS,
)
from tracer.storage.postgres.write.group_commit import GroupCommit, OnBatch
from tracer.storage.store_rules import REFUSED_SPANS
from tracer.store import MAX_RUN_BYTES, Refusal

SMALL_BYTES = 64 * 2**10
"""Smaller messages are compressed in less time than it takes to hand them to a thread."""

_FROM_SPANS = "spans"

Block = tuple[UUID, bytes, int, int, bytes]
"""The values of a block: its run, key, number of spans, uncompressed size and compressed bytes."""


@dataclass(frozen=True)
class _LockedRun:
    source: str
    projected: int
    not_before: datetime | None
    size: int
    """The uncompressed size of the run's blocks in bytes."""


class PostgresSpans:
    """The part of a writer that accepts spans."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock | None,
        due_clock: Clock | None,
        on_batch: OnBatch,
        max_run_bytes: int = MAX_RUN_BYTES,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project of the spans, with its connections.
            clock: The source of `recorded_at`; None: the database's own clock.
            due_clock: The clock of due times; None: the database's own clock.
            on_batch: Called after each batch of requests was committed.
            max_run_bytes: The most bytes of spans that a run may have.
        """
        self._project = project
        self._project_id = project.project_id
        self._clock = clock
        self._due_clock = due_clock
        self._max_run_bytes = max_run_bytes
        self._together = GroupCommit[Block](self._write_batch, _run_of, on_batch)

    async def write(self, traces: Sequence[TraceSpans]) -> list[Refusal]:
        """Store the spans of runs that accept them. Return one refusal per rejected span."""
        if sum(len(trace.message) for trace in traces) < SMALL_BYTES:
            blocks = _packed(traces)
        else:
            blocks = await asyncio.to_thread(_packed, traces)
        spans = sum(trace.count for trace in traces)
        return of_single_spans(traces, await self._together.write(blocks, spans))

    async def _write_batch(self, blocks: list[Numbered[Block]]) -> list[Refusal]:
        parts = await by_shard(self._project.pool, blocks, _run_of)
        return await write_parts(parts, lambda part: retry_on_conflict(self._write, part))

    async def _write(self, numbered: list[Numbered[Block]]) -> list[Refusal]:
        ids = sorted({run_id for _, (run_id, *_) in numbered})
        recorded_at = self._clock and self._clock()
        first: list[Statement] = [
            (INSERT_RUNS, [self._project_id, recorded_at, ids]),
            (LOCK_RUNS, [self._project_id, ids]),
        ]
        async with transaction_in(self._project, *first) as (connection, locked):
            runs = {run_id: _LockedRun(*rest) for run_id, *rest in locked}
            refused, blocks = self._divided(numbered, runs)
            if any(each.code == "run_too_large" for each in refused):
                refused = await self._without_stored(connection, numbered, refused)
            last: list[Statement] = []
            if blocks:
                cursor = AsyncRawCursor(connection)
                columns = map(list, zip(*blocks, strict=True))
                await cursor.execute(
                    INSERT_BLOCKS, [self._project_id, recorded_at, *columns], prepare=True
                )
                added: dict[UUID, tuple[int, int]] = {}
                async for run_id, spans, size in cursor:
                    known_spans, known_size = added.get(run_id, (0, 0))
                    added[run_id] = known_spans + spans, known_size + size
                last = self._noting(runs, added)
            await committed(connection, last)
        return refused

    def _divided(
        self, numbered: list[Numbered[Block]], runs: dict[UUID, _LockedRun]
    ) -> tuple[list[Refusal], list[Block]]:
        """Divide blocks into rejected and accepted ones."""
        refused: list[Refusal] = []
        blocks: list[Block] = []
        sizes: dict[UUID, int] = {}
        for index, block in numbered:
            run_id, _, _, size, _ = block
            run = runs.get(run_id)
            if run is None:
                refused.append(Refusal(index, "run_deleted", REFUSED_SPANS["run_deleted"]))
                continue
            total = sizes[run_id] = sizes.get(run_id, run.size) + size
            if total > self._max_run_bytes:
                refused.append(Refusal(index, "run_too_large", REFUSED_SPANS["run_too_large"]))
            else:
                blocks.append(block)
        return refused, blocks

    async def _without_stored(
        self,
        connection: PoolConnection,
        numbered: list[Numbered[Block]],
        refused: list[Refusal],
    ) -> list[Refusal]:
        """Return `refused` without the blocks that are stored already.

        A block is rejected if its run is too large. But if a client repeats a request, the block
        may have been stored before.
        """
        by_index = dict(numbered)
        runs, keys = zip(*[by_index[each.index][:2] for each in refused], strict=True)
        cursor = AsyncRawCursor(connection)
        await cursor.execute(FIND_BLOCKS, [self._project_id, [*keys], [*runs]])
        stored = {(run_id, key) async for run_id, key in cursor}
        return [
            each
            for each in refused
            if each.code != "run_too_large" or by_index[each.index][:2] not in stored
        ]

    def _noting(
        self, runs: dict[UUID, _LockedRun], added: dict[UUID, tuple[int, int]]
    ) -> list[Statement]:
        """Return the statements that update runs with new blocks.

        Runs that arrived as spans become pending. For the others, only the size grows.
        """
        pending: list[tuple[Any, ...]] = []
        grown: list[tuple[Any, ...]] = []
        for run_id, (spans, size) in added.items():
            run = runs[run_id]
            if run.source == _FROM_SPANS:
                pending.append((run_id, run.projected, spans, size, run.not_before))
            else:
                grown.append((run_id, size))
        due_from = self._due_clock and self._due_clock()
        statements: list[Statement] = []
        if pending:
            values = [self._project_id, due_from, *map(list, zip(*pending, strict=True))]
            statements.append((ADD_PENDING, values))
        if grown:
            statements.append((GROW_RUNS, [self._project_id, *map(list, zip(*grown, strict=True))]))
        return statements


def _packed(traces: Sequence[TraceSpans]) -> list[Block]:
    return [block_row(trace) for trace in traces]


def block_row(trace: TraceSpans) -> Block:
    """Return the spans of one trace as the values of a block."""
    message = trace.message
    return (
        root_plan_id(trace.trace_id),
        block_key(message),
        trace.count,
        len(message),
        pack_block(message),
    )


def _run_of(block: Block) -> UUID:
    return block[0]


def of_single_spans(traces: Sequence[TraceSpans], refused: Sequence[Refusal]) -> list[Refusal]:
    """Replace each refusal of a whole trace by one refusal for each of its spans."""
    by_index = {each.index: each for each in refused}
    refusals: list[Refusal] = []
    first = 0
    for index, trace in enumerate(traces):
        if (refusal := by_index.get(index)) is not None:
            refusals += [replace(refusal, index=first + place) for place in range(trace.count)]
        first += trace.count
    return refusals
