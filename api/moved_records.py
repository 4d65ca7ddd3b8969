"""404 for ids of records that do not exist any more, with a link to the run.

A run's records are computed again when new spans arrive or on request, and may then change.
A record that is made from a span gets an id that depends on the kind of the record. A later update
of the span, or a newer version of Tracer, may turn the same span into another kind of record with
another id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from tracer.errors import RecordNotFound
from tracer.store import TraceReader

MADE_FROM_SPAN = 8
"""The UUID version (RFC 9562) of the ids of records that are made from spans."""


@asynccontextmanager
async def naming_run(reader: TraceReader, record_id: UUID) -> AsyncIterator[None]:
    """If the block raises `RecordNotFound`, add the path of the run that had the record."""
    try:
        yield
    except RecordNotFound as error:
        if record_id.version == MADE_FROM_SPAN:
            run_ids = await reader.find_runs_like(record_id)
            if len(run_ids) == 1:
                raise error.in_run(f"/api/runs/{run_ids[0]}") from None
        raise
