"""Writes to Postgres: one transaction per batch, and one set-based statement per kind of record."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from psycopg.rows import dict_row

from tracer.clock import Clock, utc_now
from tracer.errors import RecordNotFound, RunNotActive
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.records.events import Event
from tracer.records.leases import DEFAULT_TERMS, Lease, LeaseTerms
from tracer.records.payloads import PayloadPolicy
from tracer.records.record_classes import Run
from tracer.records.spans import TraceSpans
from tracer.redaction import Redaction
from tracer.redaction.events import text_size
from tracer.redaction.threads import in_redaction_thread
from tracer.storage.postgres.connection.citus import by_shard, write_parts
from tracer.storage.postgres.connection.pool import store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.connection.row_records import columns
from tracer.storage.postgres.connection.write_errors import Numbered, write_storable
from tracer.storage.postgres.deletion.deletion import PostgresDeletion, Settle
from tracer.storage.postgres.projects.model_prices import ModelPrices
from tracer.storage.postgres.projects.projects import SettingsOfProject
from tracer.storage.postgres.schema.record_tables import RUN_NOT_DELETED
from tracer.storage.postgres.spans.span_writer import PostgresSpans
from tracer.storage.postgres.write.event_rows import EventRows
from tracer.storage.postgres.write.group_commit import GroupCommit
from tracer.storage.postgres.write.leases import PostgresLeases
from tracer.storage.store_rules import REFUSED_RUNS
from tracer.storage.write_redaction import WriteRedactor
from tracer.store import MAX_RUN_BYTES, Erasure, Refusal, WriteAnswer

Written = TypeVar("Written")

SMALL_SIZE = 16 * 2**10
"""Texts with fewer characters are redacted in the event loop, which is faster than a thread."""

WRITE_SECONDS = 20.0
"""How many seconds a write may wait, so that a client gets a 503 before it gives up."""

OnWritten = Callable[[Collection[UUID]], None]
"""Receives, after the commit, the runs that a write may have changed."""

OnCommit = Callable[[str, float], None]
"""Receives, after a batch, `events` or `spans`, and its seconds."""


class PostgresWriter:
    """`TraceWriter` over a project's connections."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock = utc_now,
        on_written: OnWritten = lambda _: None,
        terms: LeaseTerms = DEFAULT_TERMS,
        lease_clock: Clock | None = None,
        on_commit: OnCommit = lambda _written, _seconds: None,
        redactor: WriteRedactor | None = None,
        settings: SettingsOfProject | None = None,
        prices: ModelPrices | None = None,
        write_seconds: float | None = None,
        on_accepted: OnWritten = lambda _: None,
        max_run_bytes: int = MAX_RUN_BYTES,
        settle: Settle | None = None,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project, with its connections.
            clock: The source of `recorded_at`.
            on_written: Receives the written runs.
            terms: The lengths of leases.
            lease_clock: The clock of leases; None: the database's own.
            on_commit: Called after each batch of writes.
            redactor: Masks secrets; None: with the standard rules.
            settings: The project's settings; None: they are read from the database.
            prices: The project's prices; None: they are read from the database.
            write_seconds: How many seconds a write may wait; None: `WRITE_SECONDS`.
            on_accepted: Receives the runs with new spans, which must be projected.
            max_run_bytes: The largest size of a run's spans.
            settle: Projects pending runs before runs are selected by the content of their records.
        """
        self._project = project
        self._project_id = project.project_id
        self._on_written = on_written
        self._redactor = redactor or WriteRedactor()
        self._event_redactor = self._redactor
        self._settings = settings or SettingsOfProject(project)
        self._clock = clock
        self._write_seconds = WRITE_SECONDS if write_seconds is None else write_seconds
        self._leases = PostgresLeases(self._project_id, terms, lease_clock)
        self._on_accepted = on_accepted
        self._settle = settle
        self._spans = PostgresSpans(
            self._project, clock, lease_clock, partial(on_commit, "spans"), max_run_bytes
        )
        self._deletion = PostgresDeletion(project, on_written, clock)
        self._rows = EventRows(
            project, self._leases.heartbeats, (prices or ModelPrices(project)).known
        )
        self._together = GroupCommit[Event](
            self._write_batch, _run_of, partial(on_commit, "events")
        )

    def for_recorder(self) -> PostgresWriter:
        """Return a writer for a recorder of this process, which has redacted its events.

        It differs from this writer only in that it does not redact events again.
        """
        writer = copy(self)
        writer._event_redactor = WriteRedactor(Redaction.off())
        return writer

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`."""
        with store_errors():
            size = sum(map(text_size, events))
            redacted = await self._redacted(self._event_redactor.events, events, size)
            async with asyncio.timeout(self._write_seconds):
                refused = await self._together.write(redacted, len(redacted))
        self._on_written({event.root_plan_id for event in events})
        return WriteAnswer.without(refused, events)

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store spans."""
        with store_errors():
            size = sum(len(trace.message) for trace in traces)
            redacted = await self._redacted(self._redactor.traces, traces, size)
            async with asyncio.timeout(self._write_seconds):
                refused = await self._spans.write(redacted)
        self._on_accepted({root_plan_id(trace.trace_id) for trace in traces})
        return _answer_for_spans(traces, refused)

    async def _redacted(
        self,
        redact: Callable[[Sequence[Written], PayloadPolicy], list[Written]],
        items: Sequence[Written],
        size: float = math.inf,
    ) -> list[Written]:
        """Redact `items` with `redact`, by the project's policy for payloads.

        Redaction does not count towards `write_seconds`. Its duration depends on the items alone,
        so a client that sent them again would fail again.

        Args:
            redact: Masks secrets and shortens payloads.
            items: The events or spans.
            size: The approximate number of characters.
        """
        async with asyncio.timeout(self._write_seconds):
            policy = (await self._settings.known()).payloads
        if size < SMALL_SIZE:
            return redact(items, policy)
        return await in_redaction_thread(partial(redact, items, policy))

    async def _write_batch(self, events: list[Numbered[Event]]) -> list[Refusal]:
        now = self._clock()  # the same time for all transactions of the batch
        parts = await by_shard(self._project.pool, events, _run_of)
        return await write_parts(
            parts, lambda part: write_storable(part, "event", partial(self._write, now))
        )

    async def _write(self, now: datetime, events: list[Numbered[Event]]) -> list[Refusal]:
        open_runs = await self._rows.write([event for _, event in events], now)
        return await self._refusals(events, {e.root_plan_id for _, e in events} - open_runs)

    async def _refusals(
        self, written: list[Numbered[Event]], closed: Collection[UUID]
    ) -> list[Refusal]:
        """Return the refusals of the items that belong to the runs `closed`."""
        codes = await self._codes(closed) if closed else {}
        return [
            Refusal(index, code, REFUSED_RUNS[code])
            for index, each in written
            if each.root_plan_id in closed
            # The tombstone may be deleted by now.
            for code in [codes.get(each.root_plan_id, "run_deleted")]
        ]

    async def _codes(self, run_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the refusal code of each of these runs, which accept no events."""
        async with in_project(self._project) as connection:
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
        """Delete a run and leave a tombstone."""
        await self._deletion.erase_run(root_plan_id)

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete every run of a subject."""
        return await self._deletion.erase_subject(self._redactor.subject(subject), self._settle)

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease."""
        with store_errors():
            async with in_project(self._project) as connection:
                return await self._leases.renew(connection, recorder_id)

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run."""
        parameters = {"project_id": self._project_id, "run": root_plan_id, "now": self._clock()}
        with store_errors():
            async with in_project(self._project) as connection:
                await connection.execute(_REQUEST_CANCEL, parameters)
                cursor = connection.cursor(row_factory=dict_row)
                await cursor.execute(_RUN, parameters)
                row = await cursor.fetchone()
        if row is None:
            raise RecordNotFound("run", root_plan_id)
        self._on_written({root_plan_id})
        run = Run(**row)
        if run.status.is_ending:
            raise RunNotActive()
        return run


def _answer_for_spans(traces: Sequence[TraceSpans], refused: list[Refusal]) -> WriteAnswer:
    return WriteAnswer(sum(trace.count for trace in traces) - len(refused), refused)


def _run_of(written: Event) -> UUID:
    return written.root_plan_id


_IN_RUN = "project_id = %(project_id)s AND root_plan_id = %(run)s"

_THE_RUN = f"{_IN_RUN} AND {RUN_NOT_DELETED}"

_REQUEST_CANCEL = f"""
UPDATE run SET cancel_requested_at = %(now)s, revision = revision + 1
WHERE {_THE_RUN} AND status < 'cancelled' AND cancel_requested_at IS NULL"""

_RUN = f"SELECT {columns(Run)} FROM run WHERE {_THE_RUN}"
