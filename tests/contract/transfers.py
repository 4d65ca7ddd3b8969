"""Runs out of one store and into another, as files."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from tests.contract.stores import (
    Projecting,
    Store,
    memory_stores,
    postgres_stores,
    projecting,
)
from tracer.storage.memory.store import MemoryStore
from tracer.storage.postgres.connection.pool import Pool
from tracer.storage.postgres.writer import PostgresWriter
from tracer.store import RunFilter, TraceReader
from tracer.transfer.exporting import Format, exported
from tracer.transfer.files import pieces
from tracer.transfer.importing import BATCH_BYTES, Imported, Importer
from tracer.transfer.restorer import TraceRestorer


@dataclass(frozen=True)
class Restorable(Store):
    """A store that takes exported runs."""

    writer: TraceRestorer


async def export_of(reader: TraceReader, run_id: UUID, wanted: Format = Format.JSONL) -> bytes:
    return b"".join(exported(await reader.read_whole_run(run_id), wanted))


async def exports_of(store: Store, wanted: Format = Format.JSONL) -> dict[UUID, bytes]:
    """Return each run of a store as a file."""
    runs = await store.reader.list_runs(RunFilter(other_traces=True), 1000, None)
    ids = [run.root_plan_id for run in runs.items]
    return {run_id: await export_of(store.reader, run_id, wanted) for run_id in ids}


async def import_into(
    writer: TraceRestorer, *files: bytes, batch_bytes: int = BATCH_BYTES
) -> Imported:
    imported = Imported()
    for file in files:
        await Importer(writer, imported, batch_bytes).take(pieces(io.BytesIO(file)))
    return imported


NewRestorable = Callable[[], Restorable]
"""Answers an empty store, as `NewStore` does."""


def memory_restorables(when: Projecting = Projecting.AFTER_WRITES) -> NewRestorable:
    new_store = memory_stores(Projecting.ON_DEMAND)
    return lambda: projecting(_restorable(new_store()), when)


def postgres_restorables(pool: Pool, when: Projecting = Projecting.AFTER_WRITES) -> NewRestorable:
    new_store = postgres_stores(pool, Projecting.ON_DEMAND)
    return lambda: projecting(_restorable(new_store()), when)


def _restorable(store: Store) -> Restorable:
    assert isinstance(store.writer, MemoryStore | PostgresWriter)
    return Restorable(store.writer, store.reader, store.projection)
