"""A connection over a store in memory, and the trees of what was recorded with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.trees import Node, build_tree, read_tree
from tracer.client.tracing import Tracing
from tracer.lineage.tree import Payloads
from tracer.recorder.spool import Spool
from tracer.records.events import Event
from tracer.storage.memory.store import MemoryStore
from tracer.store import RunFilter, WriteAnswer

PLENTY_SECONDS = 200.0


class RecordedStore(MemoryStore):
    """A store that notes its writers and can be slow."""

    tracing: Tracing
    seconds = 0.0
    """How long a write takes."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        await asyncio.sleep(self.seconds)
        return await super().write(events)


@contextmanager
def recording(tmp_path: Path, buffered: bool = False) -> Iterator[tuple[Tracing, RecordedStore]]:
    """Give what `tracer.connect` gives, over a store in memory; closed at the end."""
    store = RecordedStore()
    with Tracing(
        lambda: nullcontext(store), lambda: Spool(tmp_path / "spool.sqlite3"), buffered=buffered
    ) as store.tracing:
        yield store.tracing, store


async def trees_of(store: RecordedStore) -> list[Node]:
    """Return the trees of all runs, the oldest first, once what was recorded has arrived."""
    assert await asyncio.to_thread(store.tracing.flush, PLENTY_SECONDS)
    try:
        # Where it is written, too: others may record meanwhile.
        return await asyncio.wrap_future(store.tracing.run(lambda _: _trees(store)))
    except RuntimeError:  # closed
        return await _trees(store)


async def _trees(store: MemoryStore) -> list[Node]:
    page = await store.list_runs(RunFilter(), 1000, None)
    ids = sorted(run.root_plan_id for run in page.items)
    return [
        build_tree(await read_tree(store, run_id, Payloads.FULL), str(run_id)) for run_id in ids
    ]


async def tree_of(store: RecordedStore) -> Node:
    """Return the tree of the only run there is; see `trees_of`."""
    [tree] = await trees_of(store)
    return tree
