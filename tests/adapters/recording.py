"""A connection to a recording in memory, and the trees of its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.trees import Node, plain
from tracer.client import Tracing
from tracer.recorder import Spool
from tracer.records.events import Event
from tracer.storage.memory import RecordingInMemory
from tracer.store import WriteAnswer

PLENTY_SECONDS = 200.0


class RecordedStore(RecordingInMemory):
    """A recording that notes its writers and can be slow."""

    tracing: Tracing
    seconds = 0.0
    """How long a write takes."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        await asyncio.sleep(self.seconds)
        return await super().write(events)


@contextmanager
def recording(tmp_path: Path, buffered: bool = False) -> Iterator[tuple[Tracing, RecordedStore]]:
    """Give what `tracer.connect` gives, with a recording in memory; closed at the end."""
    store = RecordedStore()
    with Tracing(
        lambda: nullcontext(store), lambda: Spool(tmp_path / "spool.sqlite3"), buffered=buffered
    ) as store.tracing:
        yield store.tracing, store


async def trees_of(store: RecordedStore) -> list[Node]:
    """Return the trees of all runs, the oldest first, once what was recorded has arrived."""
    assert await asyncio.to_thread(store.tracing.flush, PLENTY_SECONDS)
    return [plain(tree) for tree in store.trees()]


async def tree_of(store: RecordedStore) -> Node:
    """Return the tree of the only run there is; see `trees_of`."""
    [tree] = await trees_of(store)
    return tree
