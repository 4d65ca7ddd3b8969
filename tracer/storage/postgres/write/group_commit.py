"""Group commit: writes that wait at the same time share one transaction.

A commit costs the same for one row as for a thousand. Two workers take batches from one queue: one
waits for the database while the other prepares. Writes of one event loop tick share a batch. A run
is in one batch at a time, because two transactions would wait for each other's lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence, Set
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tracer.storage.postgres.connection.write_errors import Numbered, PartlyWritten
from tracer.store import Refusal

WORKERS = 2
"""How many batches are written at once. With more workers, batches are smaller and cost more per
item."""

BATCH_SIZE = 2_000
"""The largest size of a batch of several writes. A single write may be larger."""

Item = TypeVar("Item")

OnBatch = Callable[[float], None]
"""Called after each batch with its duration in seconds."""


@dataclass(eq=False)
class _Write(Generic[Item]):
    items: Sequence[Item]
    runs: Set[Hashable]
    size: int
    refused: asyncio.Future[list[Refusal]]


class GroupCommit(Generic[Item]):
    """Writes batches of items. Belongs to one event loop."""

    def __init__(
        self,
        write: Callable[[list[Numbered[Item]]], Awaitable[list[Refusal]]],
        run_of: Callable[[Item], Hashable],
        on_batch: OnBatch = lambda _seconds: None,
    ) -> None:
        """Create an empty queue.

        Args:
            write: Writes a batch and returns the refusals.
            run_of: Returns the run that an item belongs to.
            on_batch: Called after each batch.
        """
        self._write = write
        self._run_of = run_of
        self._on_batch = on_batch
        self._queue: dict[_Write[Item], None] = {}
        self._busy: set[Hashable] = set()
        """The runs that are being written."""
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many writes wait for a worker."""
        return len(self._queue)

    async def write(self, items: Sequence[Item], size: int) -> list[Refusal]:
        """Write items in a batch with others. Return the refusals, with indexes in `items`.

        If the caller is cancelled before the batch begins, the items are not written.

        Args:
            items: The items.
            size: The number of events or spans in `items`. `BATCH_SIZE` limits the sum of a batch.

        Raises:
            StoreUnavailable: Some items could not be stored.
        """
        if not items:
            return []
        runs = frozenset(map(self._run_of, items))
        write = _Write(items, runs, size, asyncio.get_running_loop().create_future())
        self._queue[write] = None
        self._start_worker()
        try:
            return await write.refused
        except asyncio.CancelledError:
            self._queue.pop(write, None)
            self._start_worker()  # others may have waited behind it
            raise

    def _start_worker(self) -> None:
        """Start a worker if there is work; it begins in the next tick of the event loop."""
        if self._queue and len(self._workers) < WORKERS:
            # The context of this caller has its ids for the log: a batch belongs to several.
            self._workers.add(asyncio.create_task(self._work(), context=Context()))

    async def _work(self) -> None:
        try:
            while batch := self._take():
                self._start_worker()
                await self._write_batch(batch)
        finally:
            self._workers.discard(asyncio.current_task())

    def _take(self) -> list[_Write[Item]]:
        """Take the writes that have waited longest, as many as fit into a batch.

        A write is skipped while an earlier write of the same run is queued or in progress.
        """
        batch: list[_Write[Item]] = []
        size = 0
        blocked = set(self._busy)
        for write in self._queue:
            fits = not batch or size + write.size <= BATCH_SIZE
            if fits and blocked.isdisjoint(write.runs):
                batch.append(write)
                size += write.size
            else:
                blocked |= write.runs
        for write in batch:
            del self._queue[write]
            self._busy |= write.runs
        return batch

    async def _write_batch(self, batch: Sequence[_Write[Item]]) -> None:
        items = [item for write in batch for item in write.items]
        begin = time.perf_counter()
        try:
            refused = await self._write(list(enumerate(items)))
            self._on_batch(time.perf_counter() - begin)
            _answer(batch, refused)
        except PartlyWritten as error:
            _answer(batch, error.refused, error, error.written)
        except Exception as error:
            _answer(batch, [], error)
        finally:
            for write in batch:
                self._busy -= write.runs
                write.refused.cancel()  # has an effect only if the worker is cancelled


def _answer(
    batch: Sequence[_Write[Item]],
    refused: Sequence[Refusal],
    failure: Exception | None = None,
    written: Set[int] = frozenset(),
) -> None:
    """Resolve each write with its refusals, or with `failure` if it was not written."""
    first = 0
    for write in batch:
        own = range(first, first + len(write.items))
        first = own.stop
        if write.refused.done():  # the caller gave up
            continue
        if failure is not None and not written >= set(own):
            write.refused.set_exception(failure)
        else:
            write.refused.set_result(
                [
                    replace(each, index=each.index - own.start)
                    for each in refused
                    if each.index in own
                ]
            )
