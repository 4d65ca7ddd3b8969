"""Runs out of a store, as files."""

from __future__ import annotations

from uuid import UUID

from tracer.store import TraceReader
from tracer.transfer import Format, exported


async def export_of(reader: TraceReader, run_id: UUID, wanted: Format = Format.JSONL) -> bytes:
    run = await reader.read_whole_run(run_id)
    return b"".join([part async for part in exported(reader, run, wanted)])
