"""Writing to Postgres: one transaction a batch, one set-based statement a kind of record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar
from uuid import UUID

from psycopg import AsyncRawCursor
from psycopg.rows import dict_row

from tracer.clock import Clock, utc_now
from tracer.errors import RecordNotFound, RunNotActive
from tracer.events import Event
from tracer.ids import DEFAULT_PROJECT_ID
from tracer.merge import Reduced, reduce_events
from tracer.otel.span_fields import root_plan_id
from tracer.otel.spans import Span
from tracer.record_json import ExportedRecord, reduce_records
from tracer.records import RECORDS, Kind, Run
from tracer.storage.agreements import LATEST, REFUSED_RUNS
from tracer.storage.engine import Pool, borrowed, store_errors
from tracer.storage.json_rows import json_batches
from tracer.storage.postgres_spans import PostgresSpans
from tracer.storage.restore_statements import restore_rows
from tracer.storage.tables import TABLES
from tracer.storage.upserts import LOCK_RUNS, UPSERTS
from tracer.storage.write_errors import Numbered, refused_of, retrying_collisions
from tracer.store import Refusal, WriteAnswer

W = TypeVar("W", Event, ExportedRecord)

OnWritten = Callable[[Collection[UUID]], None]
"""Is told after the commit which runs a write may have changed."""

Statement = tuple[str, list[Any]]
"""SQL for a raw cursor, and its parameters."""


class PostgresWriter:
    """`TraceWriter` and `TraceRestorer` over a pool of connections."""

    def __init__(
        self,
        pool: Pool,
        project_id: int = DEFAULT_PROJECT_ID,
        clock: Clock = utc_now,
        on_written: OnWritten = lambda _: None,
    ) -> None:
        self._pool = pool
        self._on_written = on_written
        self._project_id = project_id
        self._clock = clock
        self._spans = PostgresSpans(pool, project_id, clock)

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`; see `TraceWriter.write`."""
        with store_errors():
            refused = await refused_of(list(enumerate(events)), "event", self._write)
        self._on_written({event.root_plan_id for event in events})
        return WriteAnswer(len(events) - len(refused), sorted(refused, key=lambda r: r.index))

    async def restore(self, records: Sequence[ExportedRecord]) -> WriteAnswer:
        """Bring exported records back; see `TraceRestorer.restore`."""
        with store_errors():
            refused = await refused_of(list(enumerate(records)), "record", self._restore)
        self._on_written({record.root_plan_id for record in records})
        return WriteAnswer(len(records) - len(refused), sorted(refused, key=lambda r: r.index))

    async def write_spans(self, spans: Sequence[Span]) -> WriteAnswer:
        """Store `spans`; see `TraceWriter.write_spans`."""
        with store_errors():
            refused = await self._spans.write(spans)
        self._on_written({root_plan_id(span.trace_id) for span in spans})
        return WriteAnswer(len(spans) - len(refused), sorted(refused, key=lambda r: r.index))

    async def restore_spans(
        self, spans: Sequence[Span], records: Sequence[ExportedRecord]
    ) -> WriteAnswer:
        """Store `spans` whose records are as old as they were; see `TraceRestorer`."""
        with store_errors():
            refused = await self._spans.write(spans, reduce_records(records))
        self._on_written({root_plan_id(span.trace_id) for span in spans})
        return WriteAnswer(len(spans) - len(refused), sorted(refused, key=lambda r: r.index))

    async def _write(self, events: list[Numbered[Event]]) -> list[Refusal]:
        reduced = reduce_events(event for _, event in events)
        run_ids = {run_id for versions in reduced.values() for run_id, _ in versions}
        reduced[Kind.RUN] = {
            (run_id, run_id): reduced[Kind.RUN].get((run_id, run_id), {}) for run_id in run_ids
        }
        return await self._merge(events, reduced, self._clock)

    async def _restore(self, records: list[Numbered[ExportedRecord]]) -> list[Refusal]:
        reduced = reduce_records([record for _, record in records])
        rest = [
            (statement, [self._project_id, rows, "events"])
            for statement, rows in restore_rows(reduced, self._clock())
        ]
        return await self._merge(records, reduced, lambda: LATEST, rest)

    async def _merge(
        self,
        written: list[Numbered[W]],
        reduced: Reduced,
        clock: Clock,
        rest: Sequence[Statement] = (),
    ) -> list[Refusal]:
        """Merge records into the tables, and return what their runs refuse.

        Args:
            written: What was written.
            reduced: What it says of each record.
            clock: Says when new rows are recorded.
            rest: What to execute in the same transaction, after the merging.
        """
        batches = {kind: list(json_batches(kind, reduced[kind])) for kind in Kind}
        open_runs: set[UUID] = await retrying_collisions()(self._merge_once, batches, clock, rest)
        run_ids = {run_id for run_id, _ in reduced[Kind.RUN]}
        if len(open_runs) == len(run_ids):
            return []
        codes = await self._codes(run_ids - open_runs)
        return [
            Refusal(index, codes[each.root_plan_id], REFUSED_RUNS[codes[each.root_plan_id]])
            for index, each in written
            if each.root_plan_id in codes
        ]

    async def _merge_once(
        self, batches: dict[Kind, list[str]], clock: Clock, rest: Sequence[Statement]
    ) -> set[UUID]:
        """Merge in one transaction and one round trip, and return the runs that take events."""
        now = clock()
        merging = [(LOCK_RUNS, rows) for rows in batches[Kind.RUN]]
        merging += [(UPSERTS[kind], rows) for kind in UPSERTS for rows in batches[kind]]
        statements: list[Statement] = [
            *((statement, [self._project_id, now, rows]) for statement, rows in merging),
            *rest,
        ]
        async with borrowed(self._pool, seconds=None) as connection:
            # A pipeline without BEGIN is one transaction, committed or rolled back at its end.
            async with connection.pipeline():
                cursors = []
                for statement, given in statements:
                    cursor = AsyncRawCursor(connection)
                    await cursor.execute(statement, given, prepare=True)
                    cursors.append(cursor)
            locked = cursors[: len(batches[Kind.RUN])]
            return {run_id for cursor in locked for (run_id,) in await cursor.fetchall()}

    async def _codes(self, run_ids: set[UUID]) -> dict[UUID, str]:
        """Return why each of the runs takes no events."""
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(
                "SELECT root_plan_id, deleted_at IS NOT NULL FROM run"
                " WHERE project_id = %s AND root_plan_id = ANY(%s)",
                [self._project_id, list(run_ids)],
            )
            return {
                run_id: "run_deleted" if is_deleted else "run_of_spans"
                async for run_id, is_deleted in cursor
            }

    async def delete_run(self, root_plan_id: UUID) -> None:
        """Delete a run and leave a tombstone; see `TraceWriter.delete_run`."""
        given = {"project_id": self._project_id, "run": root_plan_id, "now": self._clock()}
        with store_errors():
            async with (
                borrowed(self._pool, seconds=None) as connection,
                connection.transaction(),
            ):
                cursor = await connection.execute(_BURY, given)
                if cursor.rowcount == 0:
                    raise RecordNotFound("run", root_plan_id)
                for table in ("otel_span", "removed_record", *map(TABLES.get, RECORDS)):
                    await connection.execute(
                        f"DELETE FROM {table}"
                        " WHERE project_id = %(project_id)s AND root_plan_id = %(run)s",
                        given,
                    )
        self._on_written({root_plan_id})

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record the wish to cancel a run; see `TraceWriter.request_cancel`."""
        given = {"project_id": self._project_id, "run": root_plan_id, "now": self._clock()}
        with store_errors():
            async with borrowed(self._pool) as connection, connection.transaction():
                cursor = connection.cursor(row_factory=dict_row)
                await cursor.execute(_WISH_CANCEL, given)
                await cursor.execute(_RUN, given)
                row = await cursor.fetchone()
        if row is None:
            raise RecordNotFound("run", root_plan_id)
        self._on_written({root_plan_id})
        run = Run(**row)
        if run.status.is_ending:
            raise RunNotActive()
        return run


_THE_RUN = "project_id = %(project_id)s AND root_plan_id = %(run)s AND deleted_at IS NULL"

_WISH_CANCEL = f"""
UPDATE run SET cancel_requested_at = %(now)s, revision = revision + 1
WHERE {_THE_RUN} AND status < 'cancelled' AND cancel_requested_at IS NULL"""

_RUN = f"SELECT {', '.join(Run.model_fields)} FROM run WHERE {_THE_RUN}"

_BURY = f"""
UPDATE run SET deleted_at = %(now)s, revision = revision + 1, status = 'unknown', reason = NULL,
    started_at = NULL, finished_at = NULL, abandoned_at = NULL, recorder_id = NULL, title = NULL,
    agent_name = NULL, session_id = NULL, subject = NULL, tags = '{{}}', traceparent = NULL,
    cancel_requested_at = NULL, input_tokens = 0, output_tokens = 0, cost_usd = 0, tool_calls = 0,
    failures = 0
WHERE {_THE_RUN}"""
