"""Group commit: writes that wait at the same time share one transaction.

A commit costs the same for one row as for a thousand. Whoever writes while others write waits for a
lane, and what has gathered there meanwhile goes in one group. Each is answered after the commit
that carries it. A run is in one lane at a time: its writers would wait for each other's lock.

Whoever comes in the same turn of the event loop goes in the same group. A small group begins
beside another one only when it is as large as that. Else whoever comes right after a commit would
begin one, and many writers of single items would share many small groups. Nor does one that has no
other beside it take all who wait, unless they write the same runs: then nobody would be left to be
written while the database works for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from tracer.storage.write_errors import Numbered, PartlyWritten
from tracer.store import Refusal

LANES = 2
"""How many groups are written at once: one waits for the database while the other is computed. With
more of them groups are smaller, and cost a fifth more where each write is one span."""

LARGE_ITEMS = 64
"""From how many items on a group is worth a transaction, whatever others are written."""

PATIENCE_SECONDS = 0.25
"""How long a group waits for a larger one: that may itself wait, for a lock or a slow database.
Several times what a group takes with many writers: else they share small groups after all."""

SHARED_ITEMS = 32
"""How many a group takes at least, where it leaves half of what waits to the other lane."""

GROUP_ITEMS = 2_000
"""How many items a group gathers; a single write may have more."""

Item = TypeVar("Item")

OnGroup = Callable[[float, int], None]
"""Is told of a group that was written: how many seconds it took, and how many items it had."""


@dataclass(eq=False)
class _Waiting(Generic[Item]):
    items: Sequence[Item]
    runs: frozenset[Hashable]
    size: int
    refused: asyncio.Future[list[Refusal]]


class GroupCommit(Generic[Item]):
    """Writes groups of items. Belongs to one event loop."""

    def __init__(
        self,
        write: Callable[[list[Numbered[Item]]], Awaitable[list[Refusal]]],
        run_of: Callable[[Item], Hashable],
        on_group: OnGroup = lambda _seconds, _items: None,
        patience_seconds: float = PATIENCE_SECONDS,
        size_of: Callable[[Item], int] = lambda _: 1,
    ) -> None:
        """Say how to write.

        Args:
            write: Writes what can be stored of a group, and returns what cannot.
            run_of: Returns what tells the run of an item from others.
            on_group: Is told of each group that was written.
            patience_seconds: How long a group waits for a larger one.
            size_of: Returns how many of the items that the bounds count are in one.
        """
        self._size_of = size_of
        self._write = write
        self._run_of = run_of
        self._on_group = on_group
        self._patience_seconds = patience_seconds
        self._waiting: list[_Waiting[Item]] = []
        self._busy: set[Hashable] = set()
        self._next_turn: asyncio.Handle | None = None
        """What fills lanes in the next turn of the loop."""
        self._lanes: dict[asyncio.Task[None], int] = {}
        """How many items have to wait for another to begin beside each group that is written."""

    @property
    def waiting(self) -> int:
        """How many writes wait for a lane."""
        return len(self._waiting)

    async def write(self, items: Sequence[Item]) -> list[Refusal]:
        """Write items with others, and return those that cannot be stored, by their places.

        Raises:
            StoreUnavailable: Some of them could not be stored for now.
        """
        if not items:
            return []
        runs = frozenset(map(self._run_of, items))
        size = sum(map(self._size_of, items))
        waiting = _Waiting(items, runs, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._fill_soon()
        try:
            return await waiting.refused
        finally:
            if waiting.refused.cancelled() and waiting in self._waiting:
                self._waiting.remove(waiting)  # the caller gave up before its turn
                self._fill_soon()  # others may have waited behind it

    def _fill_soon(self) -> None:
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._fill_lanes)

    def _fill_lanes(self) -> None:
        self._next_turn = None
        while (
            len(self._lanes) < LANES and self._is_worth_a_lane() and (group := self._next_group())
        ):
            runs = frozenset().union(*(each.runs for each in group))
            self._busy |= runs
            # In a context of its own: it writes for others than who happened to make it, whose
            # ids do not belong on its lines in the log.
            lane = asyncio.create_task(self._write_group(group), context=Context())
            self._lanes[lane] = min(LARGE_ITEMS, _count(group))
            lane.add_done_callback(partial(self._leave_lane, runs))
            asyncio.get_running_loop().call_later(self._patience_seconds, self._lose_patience, lane)

    def _is_worth_a_lane(self) -> bool:
        return _count(self._waiting) >= max(self._lanes.values(), default=0)

    def _lose_patience(self, lane: asyncio.Task[None]) -> None:
        if lane in self._lanes:
            self._lanes[lane] = 0
            self._fill_lanes()

    def _next_group(self) -> list[_Waiting[Item]]:
        """Take those who waited longest and whose runs no lane is writing."""
        group: list[_Waiting[Item]] = []
        rest: list[_Waiting[Item]] = []
        taken: set[Hashable] = set()
        passed: set[Hashable] = set()
        size = 0
        bound = GROUP_ITEMS
        if not self._lanes:
            bound = min(bound, max(SHARED_ITEMS, _count(self._waiting) // 2))
        for each in self._waiting:
            # What writes the runs of this group, the other lane could not take.
            most = bound if taken.isdisjoint(each.runs) else GROUP_ITEMS
            fits = not group or size + each.size <= most
            if fits and self._busy.isdisjoint(each.runs) and passed.isdisjoint(each.runs):
                group.append(each)
                taken |= each.runs
                size += each.size
            else:
                rest.append(each)
                passed |= each.runs
        self._waiting = rest
        return group

    async def _write_group(self, group: list[_Waiting[Item]]) -> None:
        items = [item for each in group for item in each.items]
        begin = time.perf_counter()
        try:
            refused = await self._write(list(enumerate(items)))
            self._on_group(time.perf_counter() - begin, _count(group))
            _answer(group, refused)
        except PartlyWritten as error:
            _answer(group, error.refused, error)
        except Exception as error:
            for each in group:
                if not each.refused.done():
                    each.refused.set_exception(error)
        except asyncio.CancelledError:  # the program ends
            for each in group:
                each.refused.cancel()
            raise

    def _leave_lane(self, runs: frozenset[Hashable], lane: asyncio.Task[None]) -> None:
        self._busy -= runs
        self._lanes.pop(lane, None)
        if not lane.cancelled():
            self._fill_soon()


def _count(writes: Iterable[_Waiting[Item]]) -> int:
    return sum(each.size for each in writes)


def _answer(
    group: Sequence[_Waiting[Item]],
    refused: Sequence[Refusal],
    failure: PartlyWritten | None = None,
) -> None:
    """Tell each which of its items were refused, or that not all of them could be written."""
    first = 0
    for each in group:
        own = range(first, first + len(each.items))
        first = own.stop
        if each.refused.done():
            continue
        if failure is not None and not failure.written >= set(own):
            each.refused.set_exception(failure)
            continue
        each.refused.set_result(
            [replace(r, index=r.index - own.start) for r in refused if r.index in own]
        )
