"""Merging: stored spans in fewer, larger blocks.

Merging combines the blocks of a run when no more spans arrive, and keeps one version of each span.
It works on one run in a transaction, under the run's advisory lock and the lock of its row. Readers
see the same spans before and after, so it does not raise the revision of the run.
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
from tracer.otel.otlp.repacking import PackedBlock, blocks_with, merge_messages
from tracer.storage.postgres.connection.pool import PoolConnection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, fetched, in_project
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
            block_bytes: The largest uncompressed size of a block.
            part_bytes: How many uncompressed bytes of a run are merged at once.
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
