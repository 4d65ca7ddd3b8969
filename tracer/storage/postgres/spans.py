"""Stored spans: accepting blocks, reading them, and merging them into larger ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from google.protobuf.message import DecodeError

from tracer.clock import Clock
from tracer.errors import RecordNotFound
from tracer.logs import get_logger
from tracer.otel.otlp.blocks import (
    BLOCK_BYTES,
    PackedBlock,
    UnreadableBlock,
    blocks_with,
    contents_of,
    merge_messages,
    parents_in,
    unpack_block,
    weight,
)
from tracer.records.span_records import SpanRecords, below_calls
from tracer.records.spans import Contents
from tracer.storage.postgres.pool import PoolConnection, SyncConnection, store_errors
from tracer.storage.postgres.session import ProjectPool, fetched, in_project
from tracer.storage.postgres.tables import ALWAYS
from tracer.store import SpanPart

# --- When a run is due, and the SQL that writers and projectors share, for raw cursors.
#
# Each statement takes the project's id as $1. docs/explanation/projection.md explains the
# conditions that each relies on.

QUIET = "interval '100 milliseconds'"
"""A run is due for projection if no span of it has arrived for that long. See also
`LONGEST_WAIT`."""

LONGEST_WAIT = "interval '1 second'"
"""A run is also due if the oldest of its pending spans has waited for that long."""

MOST_ATTEMPTS = 5
"""A run whose projection failed this often is only projected again if spans arrive or a
reprojection is requested."""

FAILED_PAUSE = "interval '1 minute'"
"""If new spans arrive for a run after `MOST_ATTEMPTS` failures, its next attempt begins at the
earliest this long after the last one."""


def later(moment: str, interval: str) -> str:
    """Return a moment plus an interval, as an expression that Postgres regards as immutable.

    The result of `timestamptz + interval` depends on the session's time zone. Citus rejects such an
    expression in `DO UPDATE SET`.
    """
    return f"({moment} AT TIME ZONE 'UTC' + {interval}) AT TIME ZONE 'UTC'"


LOCK_RUNS = """
SELECT root_plan_id, source, projected, next_projection_at,
    span_bytes + coalesce((SELECT size FROM pending_run WHERE pending_run.project_id = $1
        AND pending_run.root_plan_id = run.root_plan_id
        AND pending_run.root_plan_id = ANY($2::uuid[])), 0),
    span_count + coalesce((SELECT spans FROM pending_run WHERE pending_run.project_id = $1
        AND pending_run.root_plan_id = run.root_plan_id
        AND pending_run.root_plan_id = ANY($2::uuid[])), 0)
FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND deleted_at IS NULL
ORDER BY root_plan_id FOR NO KEY UPDATE"""
"""Lock the runs $2 that are not deleted. Citus locks rows of one shard only, so the subquery must
name the runs too."""

ADD_PENDING = f"""
INSERT INTO pending_run AS stored (project_id, root_plan_id, arrived, spans, size, since, seen_at,
    due_at)
SELECT $1, incoming.root_plan_id, incoming.projected + 1, incoming.spans, incoming.size, now, now,
    greatest(now + {QUIET}, incoming.not_before)
FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
    AS incoming (root_plan_id, projected, spans, size, not_before),
    coalesce($2::timestamptz, statement_timestamp()) AS now
ORDER BY incoming.root_plan_id
ON CONFLICT (root_plan_id, project_id) DO UPDATE
SET arrived = stored.arrived + 1, spans = stored.spans + excluded.spans,
    size = stored.size + excluded.size, seen_at = excluded.seen_at,
    due_at = CASE
        WHEN stored.due_at = 'infinity'
        THEN greatest(excluded.due_at, {later("stored.attempted_at", FAILED_PAUSE)})
        WHEN stored.attempts > 0 THEN stored.due_at
        ELSE greatest(
            least({later("excluded.since", QUIET)}, {later("stored.since", LONGEST_WAIT)}),
            {later("excluded.due_at", f"-{QUIET}")})
    END,
    attempts = least(stored.attempts, {MOST_ATTEMPTS - 1})"""
"""Mark locked runs with new blocks as pending, at the time $2 (null: now)."""


# --- Read the stored spans of a run. Also the SQL with which blocks are inserted.

RUN_LOCK_KEY = "hashtextextended(root_plan_id::text, project_id)"
"""The SQL of the key of a run's advisory lock, computed from the run's columns. A transaction that
projects a run or rewrites its blocks takes this lock first, and skips the run if the lock is held.
"""

CLAIM_RUN = f"""
SELECT pg_try_advisory_xact_lock({RUN_LOCK_KEY})
FROM (VALUES (%(run)s::uuid, %(project_id)s::integer)) AS run (root_plan_id, project_id)"""
"""Takes the advisory lock of a run until the end of the transaction, if it is free."""

LOCK_RUN = """
SELECT FROM run WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
    AND deleted_at IS NULL
FOR NO KEY UPDATE"""
"""Locks the row of a run that is not deleted."""

INSERT_BLOCK = """
INSERT INTO otel_block (project_id, root_plan_id, key, spans, size, recorded_at, body)
VALUES (%(project_id)s, %(run)s, %(key)s, %(spans)s, %(size)s, %(recorded_at)s, %(body)s)
ON CONFLICT DO NOTHING"""

_BLOCK_WEIGHTS = """
SELECT key, size, spans FROM otel_block
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
ORDER BY recorded_at, key"""

_BLOCKS_BY_KEY = """
SELECT key, body, recorded_at FROM otel_block
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND key = ANY(%(keys)s)
ORDER BY recorded_at, key"""

_SESSIONS = """
SELECT session_run_id FROM otel_session
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s ORDER BY session_run_id"""

_SPAN_RECORDS = """
SELECT span_records FROM run
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND deleted_at IS NULL"""

_STEPS_OF_PLAN = f"""
SELECT step_id FROM agent_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND {ALWAYS}
    AND plan_id = %(record)s"""

_CALLS = f"""
SELECT tool_call_id FROM act_tool_info
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND {ALWAYS}"""


def values_of(block: PackedBlock, project_id: int, root_plan_id: UUID) -> dict[str, Any]:
    """Return the parameters of `INSERT_BLOCK`."""
    return {**asdict(block), "project_id": project_id, "run": root_plan_id}


def list_parts(
    connection: SyncConnection, project_id: int, root_plan_id: UUID, *, with_sessions: bool = False
) -> list[SpanPart]:
    """Return the parts of a run's stored spans; see `TraceReader.list_span_parts`."""
    parameters = {"project_id": project_id, "run": root_plan_id}
    runs = [root_plan_id]
    if with_sessions:
        runs += [run for (run,) in connection.execute(_SESSIONS, parameters).fetchall()]
    return [
        SpanPart(run, tuple(keys))
        for run in runs
        for keys in _parts(
            connection.execute(_BLOCK_WEIGHTS, parameters | {"run": run}, binary=True).fetchall(),
            BLOCK_BYTES,
        )
    ]


def read_part(
    connection: SyncConnection,
    project_id: int,
    part: SpanPart,
    span_ids: Collection[bytes] | None = None,
) -> Contents | None:
    """Return the contents of a part; see `TraceReader.read_span_part`."""
    parameters = {"project_id": project_id, "run": part.run_id, "keys": list(part.keys)}
    blocks = connection.execute(_BLOCKS_BY_KEY, parameters, binary=True).fetchall()
    if len(blocks) < len(part.keys):
        return None
    return contents_of((body for _, body, _ in blocks), span_ids)


def read_span_records(
    connection: SyncConnection, project_id: int, root_plan_id: UUID, record_id: UUID | None
) -> tuple[SpanRecords, set[bytes] | None]:
    """Return the records of a run's spans; see `TraceReader.read_span_records`."""
    parameters = {"project_id": project_id, "run": root_plan_id, "record": record_id}
    row = connection.execute(_SPAN_RECORDS, parameters, binary=True).fetchone()
    if row is None:
        raise RecordNotFound("run", root_plan_id)
    records = SpanRecords(unpack_block(row[0]) if row[0] is not None else b"")
    calls = [] if records else connection.execute(_CALLS, parameters).fetchall()
    if calls:
        parents: dict[bytes, bytes] = {}
        for part in list_parts(connection, project_id, root_plan_id):
            values = parameters | {"keys": list(part.keys)}
            blocks = connection.execute(_BLOCKS_BY_KEY, values, binary=True).fetchall()
            parents.update(parents_in(body for _, body, _ in blocks))
        records = SpanRecords.of(below_calls(parents, [call for (call,) in calls]))
    if record_id is None:
        return records, None
    steps = connection.execute(_STEPS_OF_PLAN, parameters).fetchall()
    return records, records.spans_of([record_id, *(step for (step,) in steps)])


# --- Merging: stored spans in fewer, larger blocks.
#
# Merging combines the blocks of a run when no more spans arrive, and keeps one version of each
# span. It works on one run in a transaction, under the run's advisory lock and the lock of its row.
# Readers see the same spans before and after, so it does not raise the revision of the run.

PART_BYTES = 4 * BLOCK_BYTES
"""The largest weight of the blocks that are merged at once, to bound the memory. Larger runs are
merged in parts. Versions of one span may then remain in different parts, and readers merge them."""

_HAS_NO_PENDING = """NOT EXISTS (
    SELECT FROM pending_run AS pending
    WHERE pending.project_id = run.project_id AND pending.root_plan_id = run.root_plan_id)"""

_NEXT_RUN_TO_MERGE = f"""
SELECT root_plan_id, settle_at FROM run
WHERE project_id = %(project_id)s AND settle_at <= %(now)s AND deleted_at IS NULL
    AND (settle_at, root_plan_id) > (%(after_at)s, %(after)s) AND {_HAS_NO_PENDING}
ORDER BY settle_at, root_plan_id LIMIT 1"""

# After LOCK_RUN, in a statement of its own: an accept that held the lock may have made it pending.
_IS_MERGEABLE = f"""
SELECT FROM run WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
    AND settle_at <= %(now)s AND {_HAS_NO_PENDING}"""

_DELETE_BLOCKS = """
DELETE FROM otel_block
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND key = ANY(%(keys)s)"""

_SETTLED = """
UPDATE run SET settle_at = NULL, (span_bytes, span_count) = (
    SELECT coalesce(sum(size), 0), coalesce(sum(spans), 0) FROM otel_block
    WHERE project_id = %(project_id)s AND root_plan_id = %(run)s)
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s"""

_GIVE_UP = """
UPDATE run SET settle_at = NULL
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND settle_at IS NOT NULL"""

log = get_logger(__name__)

_FIRST_ID = UUID(int=0)


class SpanPacking:
    """Merges the spans of one project."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock | None = None,
        block_bytes: int = BLOCK_BYTES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project whose spans are merged, with its connections.
            clock: The clock by which runs are due for merging; None: the database's own clock.
            block_bytes: The largest weight of a block.
            part_bytes: The largest weight of the blocks that are merged at once.
        """
        self._project = project
        self._clock = clock
        self._block_bytes = block_bytes
        self._part_bytes = part_bytes

    async def merge(self) -> AsyncGenerator[UUID, None]:
        """Merge the blocks of the runs whose `settle_at` has passed, one run in a transaction.

        Runs that are locked, runs with pending spans and unreadable blocks are skipped.

        Yields:
            Each run, after its transaction.

        Raises:
            StoreUnavailable: The database does not answer. Runs that were merged stay so.
        """
        with store_errors():
            now = self._clock() if self._clock is not None else await self._database_now()
            position: dict[str, Any] = {"now": now, "after_at": "-infinity", "after": _FIRST_ID}
            while (row := await self._first(_NEXT_RUN_TO_MERGE, **position)) is not None:
                position["after"], position["after_at"] = row
                if await self._is_done(self._merge_run(position["after"], now), position["after"]):
                    yield position["after"]

    async def _merge_run(self, run: UUID, now: datetime) -> bool:
        values: dict[str, Any] = {"project_id": self._project.project_id, "run": run, "now": now}
        async with in_project(self._project, seconds=None) as connection:
            if not await _is_locked(connection, values):
                return False
            if not await _is_found(connection, _IS_MERGEABLE, values):
                return False
            sizes = await _fetched(connection, _BLOCK_WEIGHTS, values)
            for keys in _parts(sizes, self._part_bytes):
                await self._merge_blocks(connection, {**values, "keys": keys})
            await connection.execute(_SETTLED, values)
        return True

    async def _merge_blocks(self, connection: PoolConnection, values: dict[str, Any]) -> None:
        rows = await _fetched(connection, _BLOCKS_BY_KEY, values)
        old = [(body, recorded_at) for _, body, recorded_at in rows]
        blocks = await asyncio.to_thread(_merged, old, self._block_bytes)
        await self._replace(connection, values, blocks)

    async def _replace(
        self, connection: PoolConnection, values: dict[str, Any], blocks: list[PackedBlock]
    ) -> None:
        """Replace the blocks whose keys are in `values` by `blocks`."""
        before, after = set(values["keys"]), {block.key for block in blocks}
        if before != after:
            await connection.execute(_DELETE_BLOCKS, {**values, "keys": list(before - after)})
            for block in blocks:
                if block.key not in before:
                    block_values = values_of(block, values["project_id"], values["run"])
                    await connection.execute(INSERT_BLOCK, block_values)

    async def _is_done(self, work: Awaitable[bool], run: UUID) -> bool:
        try:
            return await work
        except (UnreadableBlock, DecodeError, ValueError) as error:
            # Other runs must not wait for it, and retrying it every minute would be useless.
            log.error("spans_of_run_unreadable", run=str(run), error=type(error).__name__)
            async with in_project(self._project) as connection:
                values = {"project_id": self._project.project_id, "run": run}
                await connection.execute(_GIVE_UP, values)
            return False

    async def _first(self, query: str, **values: Any) -> tuple[Any, ...] | None:
        values |= {"project_id": self._project.project_id}
        return next(iter(await fetched(self._project, query, values)), None)

    async def _database_now(self) -> datetime:
        [(now,)] = await fetched(self._project, "SELECT statement_timestamp()")
        assert isinstance(now, datetime)
        return now


async def _is_locked(connection: PoolConnection, values: dict[str, Any]) -> bool:
    """Try to lock a run until the end of the transaction, and return whether it is locked."""
    [(is_claimed,)] = await _fetched(connection, CLAIM_RUN, values)
    return bool(is_claimed) and await _is_found(connection, LOCK_RUN, values)


async def _is_found(connection: PoolConnection, query: str, values: dict[str, Any]) -> bool:
    return bool(await _fetched(connection, query, values))


async def _fetched(
    connection: PoolConnection, query: str, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, values, binary=True)).fetchall()


def _merged(blocks: Iterable[tuple[bytes, datetime]], max_bytes: int) -> list[PackedBlock]:
    messages = ((unpack_block(body), recorded_at) for body, recorded_at in blocks)
    return list(blocks_with(merge_messages(messages), max_bytes))


def _parts(sizes: Sequence[tuple[Any, ...]], most: int) -> list[list[bytes]]:
    """Divide blocks into parts of at most the weight `most`, and return the keys of each part.

    A block that is heavier than `most` is a part by itself.
    """
    parts: list[list[bytes]] = []
    filled = most
    for key, size, spans in sizes:
        added = weight(size, spans)
        if filled + added > most:
            parts.append([])
            filled = 0
        parts[-1].append(key)
        filled += added
    return parts
