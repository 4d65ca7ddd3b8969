"""Spans in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tracer.otel.otlp.blocks import block_key, pack_block
from tracer.otel.otlp.spans import encode_protobuf, root_plan_id
from tracer.records import DEFAULT_PROJECT_ID
from tracer.records.spans import Span
from tracer.storage.postgres import Pool

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

_RUN = """
INSERT INTO run (project_id, root_plan_id, status, recorded_at, revision, source, tags,
    input_tokens, output_tokens, cost_usd, tool_calls, failed_calls)
VALUES (%s, %s, 'unknown', %s, 1, 'spans', '{}', 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING"""


async def store_run(
    pool: Pool, run: UUID, at: datetime = LONG_AGO, project_id: int = DEFAULT_PROJECT_ID
) -> None:
    """Insert a run that arrived as spans, unless it exists."""
    await _execute(pool, _RUN, project_id, run, at)


async def store_block(
    pool: Pool,
    spans: Sequence[Span],
    at: datetime = LONG_AGO,
    project_id: int = DEFAULT_PROJECT_ID,
) -> None:
    """Insert a block with the spans of one trace, in this order, with the run."""
    message, run = encode_protobuf(spans), root_plan_id(spans[0].trace_id)
    await store_run(pool, run, at, project_id)
    await _execute(
        pool,
        "INSERT INTO otel_block VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
        *(project_id, run, block_key(message), len(spans), len(message), at, pack_block(message)),
    )


async def make_pending(
    pool: Pool,
    run: UUID,
    due_at: datetime | str = LONG_AGO,
    since: datetime = LONG_AGO,
    project_id: int = DEFAULT_PROJECT_ID,
) -> None:
    """Insert a `pending_run` row, unless there is one."""
    await _execute(
        pool,
        "INSERT INTO pending_run (project_id, root_plan_id, arrived, spans, size, since, due_at)"
        " VALUES (%s, %s, 1, 1, 1, %s, %s) ON CONFLICT DO NOTHING",
        *(project_id, run, since, due_at),
    )


async def _execute(pool: Pool, statement: str, *values: Any) -> None:
    async with pool.connection() as connection:
        await connection.execute(statement.encode(), values)
