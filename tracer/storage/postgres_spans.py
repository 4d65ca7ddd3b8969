"""Spans in Postgres: kept as they came, and projected into the records of their runs.

One transaction locks the runs, keeps the spans, reads all spans of the runs that changed, and makes
their records what the projection says. The number of statements does not depend on how many spans,
runs or records there are, as long as the rows of one statement fit into one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from psycopg import AsyncRawCursor

from tracer.clock import Clock
from tracer.merge import Key, Reduced
from tracer.otel.decode import decode_protobuf
from tracer.otel.projection import project
from tracer.otel.span_fields import root_plan_id
from tracer.otel.spans import Span, merge_spans
from tracer.otel.wire import bytes_field
from tracer.records import RECORDS, Kind
from tracer.storage.agreements import LATEST, REFUSED_SPANS
from tracer.storage.engine import Pool, PoolConnection, borrowed
from tracer.storage.json_rows import json_batches
from tracer.storage.projected_runs import projected_parts, shown_of_run
from tracer.storage.restore_statements import restore_rows
from tracer.storage.span_statements import (
    KEEP_SPANS,
    LOCK_RUNS_OF_SPANS,
    READ_SPANS,
    REMOVE_RECORDS,
    REPLACE_RECORDS,
    UPDATE_RUNS,
)
from tracer.storage.write_errors import Numbered, refused_of, retrying_collisions
from tracer.store import Refusal
from tracer.text import escape
from tracer.versions import Fields

_STATEMENT_BYTES = 32_000_000
_FROM_SPANS = "spans"

Records = dict[Kind, dict[Key, Fields]]


class PostgresSpans:
    """The part of a writer that takes spans."""

    def __init__(self, pool: Pool, project_id: int, clock: Clock) -> None:
        self._pool = pool
        self._project_id = project_id
        self._clock = clock

    async def write(self, spans: Sequence[Span], said: Reduced | None = None) -> list[Refusal]:
        """Store what can be stored, and return what cannot.

        Args:
            spans: The spans.
            said: What exports say of the records of their runs.
        """
        return await refused_of(list(enumerate(spans)), "span", partial(self._write, said))

    async def _write(self, said: Reduced | None, spans: list[Numbered[Span]]) -> list[Refusal]:
        versions = list(merge_spans(span for _, span in spans).values())
        open_runs: set[UUID] = await retrying_collisions()(self._write_once, versions, said)
        return [
            Refusal(index, "run_deleted", REFUSED_SPANS)
            for index, span in spans
            if root_plan_id(span.trace_id) not in open_runs
        ]

    async def _write_once(self, spans: Sequence[Span], said: Reduced | None) -> set[UUID]:
        """Write in one transaction, and return the runs that take spans."""
        now = self._clock()
        born = now if said is None else LATEST
        run_ids = sorted({root_plan_id(span.trace_id) for span in spans})
        async with (
            borrowed(self._pool, seconds=None) as connection,
            connection.transaction(),
        ):
            cursor = AsyncRawCursor(connection)
            await cursor.execute(LOCK_RUNS_OF_SPANS, [self._project_id, born, run_ids])
            sources: dict[UUID, str] = dict(await cursor.fetchall())
            changed = await self._keep(
                connection, now, [span for span in spans if root_plan_id(span.trace_id) in sources]
            )
            projected_ids = [id_ for id_ in sorted(changed) if sources[id_] == _FROM_SPANS]
            runs: dict[Key, Fields] = {}
            records: Records = {kind: {} for kind in RECORDS}
            if projected_ids:
                bodies = await self._read(connection, projected_ids)
                runs, records = await asyncio.to_thread(_projected, bodies)
                await self._replace(connection, born, runs, records)
            if said is not None:
                there: Reduced = {Kind.RUN: {(run_id, run_id): {} for run_id in sources}, **records}
                await self._restore(connection, now, _dated(there, said))
        return set(sources)

    async def _restore(self, connection: PoolConnection, now: datetime, said: Reduced) -> None:
        """Give runs and records what no span says of them."""
        async with connection.pipeline():
            for statement, rows in restore_rows(said, now):
                cursor = AsyncRawCursor(connection)
                await cursor.execute(statement, [self._project_id, rows, _FROM_SPANS])

    async def _keep(
        self, connection: PoolConnection, now: datetime, spans: Iterable[Span]
    ) -> set[UUID]:
        """Keep the newer version of each span, and return the runs that this changes."""
        changed: set[UUID] = set()
        for batch in _batches(spans):
            cursor = AsyncRawCursor(connection)
            columns = [
                [root_plan_id(span.trace_id) for span in batch],
                [span.span_id for span in batch],
                [span.parent_span_id for span in batch],
                [escape(span.name) for span in batch],
                [span.start for span in batch],
                [span.end for span in batch],
                [span.body for span in batch],
            ]
            await cursor.execute(KEEP_SPANS, [self._project_id, now, *columns])
            changed.update(run_id for (run_id,) in await cursor.fetchall())
        return changed

    async def _read(
        self, connection: PoolConnection, run_ids: list[UUID]
    ) -> dict[UUID, list[bytes]]:
        """Return the bodies of all spans of each run."""
        bodies: dict[UUID, list[bytes]] = {run_id: [] for run_id in run_ids}
        cursor = AsyncRawCursor(connection)
        await cursor.execute(READ_SPANS, [self._project_id, run_ids], binary=True)
        async for run_id, body in cursor:
            bodies[run_id].append(body)
        return bodies

    async def _replace(
        self,
        connection: PoolConnection,
        now: datetime,
        runs: dict[Key, Fields],
        records: Records,
    ) -> None:
        """Make the records of the runs what is given, whatever they were."""
        run_ids = [run_id for run_id, _ in runs]
        async with connection.pipeline():
            for kind in RECORDS:
                keys = [record_id for _, record_id in records[kind]]
                cursor = AsyncRawCursor(connection)
                await cursor.execute(REMOVE_RECORDS[kind], [self._project_id, run_ids, keys])
                for rows in json_batches(kind, records[kind]):
                    cursor = AsyncRawCursor(connection)
                    await cursor.execute(REPLACE_RECORDS[kind], [self._project_id, now, rows])
            for rows in json_batches(Kind.RUN, runs):
                cursor = AsyncRawCursor(connection)
                await cursor.execute(UPDATE_RUNS, [self._project_id, rows])


def _batches(spans: Iterable[Span]) -> list[list[Span]]:
    """Return the spans in groups that one statement can take."""
    batches: list[list[Span]] = []
    size = _STATEMENT_BYTES
    for span in spans:
        if size + len(span.body) > _STATEMENT_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(span)
        size += len(span.body)
    return batches


def _dated(there: Reduced, said: Reduced) -> Reduced:
    """Return what exports say of the records that are there, and of others of their runs."""
    run_ids = {run_id for run_id, _ in there[Kind.RUN]}
    others = {kind: {key for key in said[kind] if key[0] in run_ids} for kind in Kind}
    return {
        kind: {key: said[kind].get(key, {}) for key in there[kind].keys() | others[kind]}
        for kind in Kind
    }


def _projected(bodies: dict[UUID, list[bytes]]) -> tuple[dict[Key, Fields], Records]:
    """Return the runs and their records; takes a while, and belongs into a thread."""
    runs: dict[Key, Fields] = {}
    records: Records = {kind: {} for kind in RECORDS}
    for run_id, kept in bodies.items():
        projected = project(decode_protobuf(b"".join(bytes_field(1, body) for body in kept)).spans)
        parts = projected_parts(projected)
        runs[run_id, run_id] = {
            **projected.run,
            **shown_of_run(run_id, parts),
            "is_agent_work": projected.is_agent_work,
        }
        for kind, part in parts.items():
            records[kind] |= {(run_id, record_id): fields for record_id, fields in part.items()}
    return runs, records
