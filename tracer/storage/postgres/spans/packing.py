"""Merging: stored spans in fewer, larger blocks.

Merging combines the blocks of a run when no more spans arrive, and keeps one version of each span.
It works on one run in a transaction, under the run's advisory lock and the lock of its row. Readers
see the same spans before and after, so it does not raise the revision of the run. If a project
keeps the spans of agent work only, merging also *thins* the run: it removes the other spans, or the
whole run if it is no agent work. The records of a thinned run do not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from google.protobuf.message import DecodeError

from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.otel.otlp.blocks import UnreadableBlock, unpack_block
from tracer.otel.otlp.repacking import Item, PackedBlock, blocks_with, merge_messages
from tracer.otel.projection.thinning import thinned
from tracer.records.project_settings import KeptSpans
from tracer.storage.postgres.connection.pool import PoolConnection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project, reading
from tracer.storage.postgres.schema.record_tables import METADATA
from tracer.storage.postgres.spans.blocks import (
    BLOCK_BYTES,
    CLAIM_RUN,
    INSERT_BLOCK,
    LOCK_RUN,
    values_of,
)

PART_BYTES = 16 * BLOCK_BYTES
"""How many uncompressed bytes of a run are merged at once, to bound the memory. Larger runs are
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

_BLOCK_SIZES = """
SELECT key, size FROM otel_block WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
ORDER BY recorded_at, key"""

_BLOCKS_BY_KEY = """
SELECT key, body, recorded_at FROM otel_block
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND key = ANY(%(keys)s)
ORDER BY recorded_at, key"""

_DELETE_BLOCKS = """
DELETE FROM otel_block
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND key = ANY(%(keys)s)"""

_SETTLED = """
UPDATE run SET settle_at = NULL, span_bytes = (
    SELECT coalesce(sum(size), 0) FROM otel_block
    WHERE project_id = %(project_id)s AND root_plan_id = %(run)s)
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s"""

THINNED_BYTES = PART_BYTES // 4
"""Runs with more uncompressed bytes of spans are not thinned, because thinning projects a run in
the server's process."""

# A run whose projection failed keeps all spans, because their records are unknown.
_MAY_BE_THINNED = """
SELECT FROM run WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
    AND source = 'spans' AND projected > 0 AND projection_error IS NULL"""

_SESSIONS = """
SELECT session_run_id FROM otel_session
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s"""

_BLOCKS_OF_RUNS = """
SELECT body FROM otel_block WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)
ORDER BY root_plan_id, recorded_at, key"""

_NOTE_REMOVED = """
UPDATE run SET removed_spans = removed_spans + %(removed)s
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s"""

# The foreign keys are deferred, so the order is irrelevant.
_DELETE_RUN = tuple(
    f"DELETE FROM {table.name} WHERE project_id = %(project_id)s AND root_plan_id = %(run)s"
    for table in reversed(METADATA.sorted_tables)
    if "root_plan_id" in table.columns
)
"""Delete a run without leaving a tombstone. Later spans of its trace are therefore accepted."""

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
        keep: KeptSpans = KeptSpans.ALL,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project whose spans are merged, with its connections.
            clock: The clock by which runs are due for merging; None: the database's own clock.
            block_bytes: The largest uncompressed size of a block.
            part_bytes: How many uncompressed bytes of a run are merged at once.
            keep: Which spans the project keeps of runs that are merged.
        """
        self._keep = keep
        self.removed_spans = 0
        """How many spans were removed, including the spans of removed runs."""
        self.removed_runs = 0
        """How many runs were removed because they contained no agent work."""
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
            place: dict[str, Any] = {"now": now, "after_at": "-infinity", "after": _FIRST_ID}
            while (row := await self._first(_NEXT_RUN_TO_MERGE, **place)) is not None:
                place["after"], place["after_at"] = row
                if await self._is_done(self._merge_run(place["after"], now), place["after"]):
                    yield place["after"]

    async def _merge_run(self, run: UUID, now: datetime) -> bool:
        values: dict[str, Any] = {"project_id": self._project.project_id, "run": run, "now": now}
        async with in_project(self._project, seconds=None) as connection:
            if not await _is_locked(connection, values):
                return False
            if not await _is_found(connection, _IS_MERGEABLE, values):
                return False
            sizes = await _fetched(connection, _BLOCK_SIZES, values)
            if (
                self._keep is KeptSpans.AGENT
                and sum(size for _, size in sizes) <= THINNED_BYTES
                and await _is_found(connection, _MAY_BE_THINNED, values)
            ):
                await self._thin(connection, {**values, "keys": [key for key, _ in sizes]})
                await connection.execute(_SETTLED, values)
                return True
            for keys in _parts(sizes, self._part_bytes):
                await self._merge_blocks(connection, {**values, "keys": keys})
            await connection.execute(_SETTLED, values)
        return True

    async def _merge_blocks(self, connection: PoolConnection, values: dict[str, Any]) -> None:
        rows = await _fetched(connection, _BLOCKS_BY_KEY, values)
        old = [(body, recorded_at) for _, body, recorded_at in rows]
        blocks = await asyncio.to_thread(_merged, old, self._block_bytes)
        await self._replace(connection, values, blocks)

    async def _thin(self, connection: PoolConnection, values: dict[str, Any]) -> None:
        """Merge the blocks of a run, without the spans that are no agent work.

        If no spans remain, remove the run.
        """
        rows = await _fetched(connection, _BLOCKS_BY_KEY, values)
        old = [(body, recorded_at) for _, body, recorded_at in rows]
        named = {"runs": [run_id for (run_id,) in await _fetched(connection, _SESSIONS, values)]}
        of_sessions = [
            body for (body,) in await _fetched(connection, _BLOCKS_OF_RUNS, {**values, **named})
        ]
        blocks, removed = await asyncio.to_thread(_thinned, old, of_sessions, self._block_bytes)
        if blocks:
            await self._replace(connection, values, blocks)
            await connection.execute(_NOTE_REMOVED, {**values, "removed": removed})
        else:
            for statement in _DELETE_RUN:
                await connection.execute(statement, values)
            self.removed_runs += 1
        self.removed_spans += removed

    async def _replace(
        self, connection: PoolConnection, values: dict[str, Any], blocks: list[PackedBlock]
    ) -> None:
        """Replace the blocks whose keys are in `values` by `blocks`."""
        before, after = set(values["keys"]), {block.key for block in blocks}
        if before != after:
            await connection.execute(_DELETE_BLOCKS, {**values, "keys": list(before - after)})
            await _insert(connection, [each for each in blocks if each.key not in before], values)

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
        async with reading(self._project) as connection:
            values |= {"project_id": self._project.project_id}
            return await (await connection.execute(query, values)).fetchone()

    async def _database_now(self) -> datetime:
        async with reading(self._project) as connection:
            cursor = await connection.execute("SELECT statement_timestamp()")
            [(now,)] = await cursor.fetchall()
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


async def _insert(
    connection: PoolConnection, blocks: Iterable[PackedBlock], values: dict[str, Any]
) -> int:
    """Store blocks, and return the sum of their sizes."""
    size = 0
    for block in blocks:
        block_values = values_of(block, values["project_id"], values["run"])
        await connection.execute(INSERT_BLOCK, block_values)
        size += block.size
    return size


def _blocks(items: Iterable[Item], max_bytes: int) -> list[PackedBlock]:
    return list(blocks_with(items, max_bytes))


def _merged(blocks: Iterable[tuple[bytes, datetime]], max_bytes: int) -> list[PackedBlock]:
    messages = ((unpack_block(body), recorded_at) for body, recorded_at in blocks)
    return _blocks(merge_messages(messages), max_bytes)


def _thinned(
    blocks: Iterable[tuple[bytes, datetime]], of_sessions: Iterable[bytes], max_bytes: int
) -> tuple[list[PackedBlock], int]:
    """Return the blocks of a run after thinning, and the number of removed spans.

    The list of blocks is empty if the run must be removed. If the projection of the run fails, no
    spans are removed.
    """
    items = merge_messages((unpack_block(body), recorded_at) for body, recorded_at in blocks)
    try:
        remaining_items = thinned(items, [unpack_block(body) for body in of_sessions])
    except Exception as error:  # a dialect may raise anything
        log.warning("run_not_thinned", error=type(error).__name__)
        remaining_items = items
    left = [] if remaining_items is None else _blocks(remaining_items, max_bytes)
    return left, len(items) - len(remaining_items or ())


def _parts(sizes: Sequence[tuple[Any, ...]], most: int) -> list[list[bytes]]:
    """Divide blocks into parts of at most `most` bytes, and return the keys of each part.

    A block that is larger than `most` is a part by itself.
    """
    parts: list[list[bytes]] = []
    filled = most
    for key, size in sizes:
        if filled + size > most:
            parts.append([])
            filled = 0
        parts[-1].append(key)
        filled += size
    return parts
