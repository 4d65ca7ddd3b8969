"""Writes to Postgres: one transaction per batch, and one set-based statement per kind of record."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from psycopg import AsyncRawCursor
from psycopg.rows import dict_row

from tracer.clock import Clock, utc_now
from tracer.errors import RecordNotFound, RunNotActive
from tracer.otel.otlp import redacted_traces
from tracer.otel.otlp.blocks import block_key, pack_block, single_spans, unpack_block
from tracer.otel.otlp.spans import root_plan_id
from tracer.records import DEFAULT_TERMS, Lease, LeaseTerms, Run
from tracer.records.events import Event
from tracer.records.masks import PayloadPolicy
from tracer.records.spans import TraceSpans
from tracer.redaction import Redaction, standard_redaction
from tracer.redaction.events import redacted_events, text_size
from tracer.storage.postgres.citus import by_shard, write_parts
from tracer.storage.postgres.deletion import PostgresDeletion, Settle
from tracer.storage.postgres.event_rows import EventRows
from tracer.storage.postgres.leases import PostgresLeases
from tracer.storage.postgres.pool import (
    Numbered,
    PartlyWritten,
    PoolConnection,
    retry_on_conflict,
    store_errors,
    write_storable,
)
from tracer.storage.postgres.projects import ModelPrices, SettingsOfProject
from tracer.storage.postgres.rows import REFUSED_RUNS, REFUSED_SPANS, columns
from tracer.storage.postgres.session import (
    ProjectPool,
    Statement,
    committed,
    fetched,
    in_project,
    transaction_in,
)
from tracer.storage.postgres.spans import ADD_PENDING, LOCK_RUNS
from tracer.storage.postgres.tables import RUN_NOT_DELETED
from tracer.storage.postgres.watch import NOTIFY_NOBODY, Notify
from tracer.storage.write_redaction import stored_subject
from tracer.store import MAX_RUN_BYTES, MAX_RUN_SPANS, Erasure, Refusal, WriteAnswer
from tracer.text import storable

# --- Group commit: writes that wait at the same time share one transaction.
#
# A commit costs the same for one row as for a thousand. Two workers take batches from one queue:
# one waits for the database while the other prepares. Writes of one event loop tick share a batch.
# A run is in one batch at a time, because two transactions would wait for each other's lock.

WORKERS = 2
"""How many batches are written at once. With more workers, batches are smaller and cost more per
item."""

BATCH_SIZE = 2_000
"""The largest size of a batch of several writes. A single write may be larger."""

_CLOSED_RUNS = """
SELECT root_plan_id, deleted_at IS NOT NULL FROM run
WHERE project_id = %s AND root_plan_id = ANY(%s)"""

_REQUEST_CANCEL = f"""
UPDATE run SET cancel_requested_at = %(now)s, revision = revision + 1,
    changed_at = statement_timestamp()
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND {RUN_NOT_DELETED}
    AND status < 'cancelled' AND cancel_requested_at IS NULL"""

_OPEN_PARTS = f"""
SELECT root_plan_id FROM run
WHERE project_id = %(project_id)s AND head_id = %(run)s AND {RUN_NOT_DELETED}
    AND status < 'cancelled' ORDER BY root_plan_id"""

_RUN = f"""
SELECT {columns(Run, "= %(run)s")} FROM run
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND {RUN_NOT_DELETED}"""

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


# --- Accepting spans in Postgres: they are stored as blocks, and their runs become pending.
#
# docs/explanation/projection.md describes the locks and what the commit relies on. Each statement
# takes the project's id as $1.

SMALL_BYTES = 64 * 2**10
"""Smaller messages are compressed in less time than it takes to hand them to a thread."""

_FROM_SPANS = "spans"

_INSERT_RUNS = """
INSERT INTO run (project_id, root_plan_id, status, recorded_at, revision, source,
    is_agent_work, input_tokens, output_tokens, cost_usd, tool_calls, failed_calls)
SELECT $1, root_plan_id, 'unknown', coalesce($2, statement_timestamp()), 1, 'spans', false,
    0, 0, 0, 0, 0
FROM unnest($3::uuid[]) AS incoming (root_plan_id)
ORDER BY root_plan_id
ON CONFLICT (project_id, root_plan_id) DO NOTHING"""

_INSERT_BLOCKS = """
INSERT INTO otel_block (project_id, root_plan_id, key, spans, size, recorded_at, body)
SELECT $1, root_plan_id, key, spans, size, coalesce($2, statement_timestamp()), body
FROM unnest($3::uuid[], $4::bytea[], $5::integer[], $6::bigint[], $7::bytea[])
    AS incoming (root_plan_id, key, spans, size, body)
ORDER BY root_plan_id, key
ON CONFLICT (root_plan_id, key, project_id) DO NOTHING
RETURNING root_plan_id, spans, size"""
"""Store blocks in locked runs, and return those that were not stored yet."""

_FIND_BLOCKS = """
SELECT root_plan_id, key FROM otel_block
WHERE project_id = $1 AND root_plan_id = ANY($3::uuid[]) AND key = ANY($2::bytea[])"""
"""Return which of the blocks with the keys $2 are stored in the runs $3."""

_GROW_RUNS = """
UPDATE run SET span_count = span_count + incoming.spans, span_bytes = span_bytes + incoming.size
FROM unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS incoming (root_plan_id, spans, size)
WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
    AND run.root_plan_id = ANY($2::uuid[])"""
"""Add the sizes of new blocks to runs that arrived as events. Such runs are never projected."""

_NOTE_REFUSED = """
UPDATE run SET refused_spans = refused_spans + incoming.spans, revision = revision + 1,
    changed_at = statement_timestamp()
FROM unnest($2::uuid[], $3::bigint[]) AS incoming (root_plan_id, spans)
WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
    AND run.root_plan_id = ANY($2::uuid[])"""
"""Count the spans that locked runs rejected because they are too large."""

Block = tuple[UUID, bytes, int, int, bytes]
"""The values of a block: its run, key, number of spans, uncompressed size and compressed bytes."""


@dataclass(frozen=True)
class _LockedRun:
    source: str
    projected: int
    not_before: datetime | None
    size: int
    """The uncompressed size of the run's blocks in bytes."""
    spans: int
    """The number of spans and log records in the run's blocks."""


@dataclass(frozen=True)
class _TooLarge(Refusal):
    """The refusal of a block whose run is too large."""

    room: tuple[int, int]
    """How many spans and how many bytes the run could still receive."""
    accepted: int = 0
    """How many items at the beginning of the block were accepted."""


class PostgresSpans:
    """The part of a writer that accepts spans."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock | None,
        due_clock: Clock | None,
        on_batch: OnBatch,
        max_run_bytes: int = MAX_RUN_BYTES,
        max_run_spans: int = MAX_RUN_SPANS,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project of the spans, with its connections.
            clock: The source of `recorded_at`; None: the database's own clock.
            due_clock: The clock of due times; None: the database's own clock.
            on_batch: Called after each batch of requests was committed.
            max_run_bytes: The most bytes of spans that a run may have.
            max_run_spans: The most spans and log records that a run may have.
        """
        self._project = project
        self._project_id = project.project_id
        self._clock = clock
        self._due_clock = due_clock
        self._max_run_bytes = max_run_bytes
        self._max_run_spans = max_run_spans
        self._together = GroupCommit[Block](self._write_batch, _run_of_block, on_batch)

    async def write(self, traces: Sequence[TraceSpans]) -> list[Refusal]:
        """Store the spans of runs that accept them. Return one refusal per rejected span."""
        if sum(len(trace.message) for trace in traces) < SMALL_BYTES:
            blocks = _packed(traces)
        else:
            blocks = await asyncio.to_thread(_packed, traces)
        spans = sum(trace.count for trace in traces)
        return of_single_spans(traces, await self._together.write(blocks, spans))

    async def _write_batch(self, blocks: list[Numbered[Block]]) -> list[Refusal]:
        parts = await by_shard(self._project.pool, blocks, _run_of_block)
        return await write_parts(parts, lambda part: retry_on_conflict(self._write, part))

    async def _write(self, numbered: list[Numbered[Block]]) -> list[Refusal]:
        ids = sorted({run_id for _, (run_id, *_) in numbered})
        recorded_at = self._clock and self._clock()
        first: list[Statement] = [
            (_INSERT_RUNS, [self._project_id, recorded_at, ids]),
            (LOCK_RUNS, [self._project_id, ids]),
        ]
        async with transaction_in(self._project, *first) as (connection, locked):
            runs = {run_id: _LockedRun(*rest) for run_id, *rest in locked}
            refused, blocks = self._check_sizes(numbered, runs)
            last: list[Statement] = []
            if any(isinstance(each, _TooLarge) for each in refused):
                refused = await self._without_stored(connection, numbered, refused)
                last += self._accept_beginnings(dict(numbered), refused, blocks)
            if blocks:
                cursor = AsyncRawCursor(connection)
                columns = map(list, zip(*blocks, strict=True))
                await cursor.execute(
                    _INSERT_BLOCKS, [self._project_id, recorded_at, *columns], prepare=True
                )
                added: dict[UUID, tuple[int, int]] = {}
                async for run_id, spans, size in cursor:
                    known_spans, known_size = added.get(run_id, (0, 0))
                    added[run_id] = known_spans + spans, known_size + size
                last += self._run_updates(runs, added)
            await committed(connection, last)
        return refused

    def _check_sizes(
        self, numbered: list[Numbered[Block]], runs: dict[UUID, _LockedRun]
    ) -> tuple[list[Refusal], list[Block]]:
        """Return the refusals, and the blocks of runs that accept them."""
        refused: list[Refusal] = []
        blocks: list[Block] = []
        sizes: dict[UUID, tuple[int, int]] = {}
        for index, block in numbered:
            run_id, _, spans, size, _ = block
            run = runs.get(run_id)
            if run is None:
                refused.append(Refusal(index, "run_deleted", REFUSED_SPANS["run_deleted"]))
                continue
            had_spans, had_bytes = sizes.get(run_id, (run.spans, run.size))
            sizes[run_id] = had_spans + spans, had_bytes + size
            room = self._max_run_spans - had_spans, self._max_run_bytes - had_bytes
            if spans <= room[0] and size <= room[1]:
                blocks.append(block)
            else:
                detail = REFUSED_SPANS["run_too_large"]
                refused.append(_TooLarge(index, "run_too_large", detail, room))
        return refused, blocks

    def _accept_beginnings(
        self, numbered: dict[int, Block], refused: list[Refusal], blocks: list[Block]
    ) -> list[Statement]:
        """Add the parts of refused blocks that fit in their runs to `blocks`.

        Returns:
            The statements that count the refused spans of each run.
        """
        counts: Counter[UUID] = Counter()
        for position, each in enumerate(refused):
            if isinstance(each, _TooLarge):
                block = numbered[each.index]
                if (part := _beginning_of(block, *each.room)) is not None:
                    blocks.append(part)
                    refused[position] = each = replace(each, accepted=part[2])
                counts[block[0]] += block[2] - each.accepted
        if not counts:
            return []
        return [(_NOTE_REFUSED, [self._project_id, list(counts), list(counts.values())])]

    async def _without_stored(
        self,
        connection: PoolConnection,
        numbered: list[Numbered[Block]],
        refused: list[Refusal],
    ) -> list[Refusal]:
        """Return `refused` without the blocks that are stored already.

        A block is rejected if its run is too large. But if a client repeats a request, the block
        may have been stored before.
        """
        by_index = dict(numbered)
        runs, keys = zip(*[by_index[each.index][:2] for each in refused], strict=True)
        cursor = AsyncRawCursor(connection)
        await cursor.execute(_FIND_BLOCKS, [self._project_id, [*keys], [*runs]])
        stored = {(run_id, key) async for run_id, key in cursor}
        return [
            each
            for each in refused
            if not isinstance(each, _TooLarge) or by_index[each.index][:2] not in stored
        ]

    def _run_updates(
        self, runs: dict[UUID, _LockedRun], added: dict[UUID, tuple[int, int]]
    ) -> list[Statement]:
        """Return the statements that update runs with new blocks.

        Runs that arrived as spans become pending. For the others, only the size grows.
        """
        pending: list[tuple[Any, ...]] = []
        grown: list[tuple[Any, ...]] = []
        for run_id, (spans, size) in added.items():
            run = runs[run_id]
            if run.source == _FROM_SPANS:
                pending.append((run_id, run.projected, spans, size, run.not_before))
            else:
                grown.append((run_id, spans, size))
        due_from = self._due_clock and self._due_clock()
        statements: list[Statement] = []
        if pending:
            values = [self._project_id, due_from, *map(list, zip(*pending, strict=True))]
            statements.append((ADD_PENDING, values))
        if grown:
            values = [self._project_id, *map(list, zip(*grown, strict=True))]
            statements.append((_GROW_RUNS, values))
        return statements


def _packed(traces: Sequence[TraceSpans]) -> list[Block]:
    return [block_row(trace) for trace in traces]


def block_row(trace: TraceSpans) -> Block:
    """Return the spans of one trace as the values of a block."""
    message = trace.message
    return (
        root_plan_id(trace.trace_id),
        block_key(message),
        trace.count,
        len(message),
        pack_block(message),
    )


def _beginning_of(block: Block, spans: int, size: int) -> Block | None:
    """Return a block with the first items of `block`: at most so many, and so many bytes.

    None if there is no room for any.
    """
    run_id, _, count, _, body = block
    if spans <= 0 or size <= 0:
        return None
    messages: list[bytes] = []
    for each in single_spans(TraceSpans(run_id.bytes, unpack_block(body), count))[:spans]:
        size -= len(each.message)
        if size < 0:
            break
        messages.append(each.message)
    message = b"".join(messages)
    return block_row(TraceSpans(run_id.bytes, message, len(messages))) if messages else None


def _run_of_block(block: Block) -> UUID:
    return block[0]


def of_single_spans(traces: Sequence[TraceSpans], refused: Sequence[Refusal]) -> list[Refusal]:
    """Replace each refusal of a trace by one refusal for each of its rejected spans."""
    by_index = {each.index: each for each in refused}
    refusals: list[Refusal] = []
    first = 0
    for index, trace in enumerate(traces):
        if (refusal := by_index.get(index)) is not None:
            accepted = refusal.accepted if isinstance(refusal, _TooLarge) else 0
            code, detail = refusal.code, refusal.detail
            refusals += [
                Refusal(each, code, detail) for each in range(first + accepted, first + trace.count)
            ]
        first += trace.count
    return refusals


# --- Accepting events in Postgres: they are merged into rows.


class PostgresEvents:
    """The part of a writer that accepts events."""

    def __init__(
        self, project: ProjectPool, rows: EventRows, clock: Clock, on_batch: OnBatch
    ) -> None:
        """Connect to the database.

        Args:
            project: The project of the events, with its connections.
            rows: Merges the events into the project's rows.
            clock: The source of `recorded_at`.
            on_batch: Called after each batch of writes was committed.
        """
        self._project = project
        self._project_id = project.project_id
        self._rows = rows
        self._clock = clock
        self._together = GroupCommit[Event](self._write_batch, _run_of_event, on_batch)

    async def write(self, events: Sequence[Event]) -> list[Refusal]:
        """Store the events of runs that accept them. Return the refusals of the others."""
        return await self._together.write(events, len(events))

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run, and return the run.

        Raises:
            RecordNotFound: The run does not exist, or it was deleted.
        """
        parameters = {"project_id": self._project_id, "run": root_plan_id, "now": self._clock()}
        async with in_project(self._project) as connection:
            await connection.execute(_REQUEST_CANCEL, parameters)
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(_RUN, parameters)
            row = await cursor.fetchone()
        if row is None:
            raise RecordNotFound("run", root_plan_id)
        return Run(**row)

    async def open_parts(self, root_plan_id: UUID) -> list[UUID]:
        """Return the open runs that continue a run, directly or not, if it begins their work."""
        values = {"project_id": self._project_id, "run": root_plan_id}
        return [run_id for (run_id,) in await fetched(self._project, _OPEN_PARTS, values)]

    async def _write_batch(self, events: list[Numbered[Event]]) -> list[Refusal]:
        now = self._clock()  # the same time for all transactions of the batch
        parts = await by_shard(self._project.pool, events, _run_of_event)
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
            cursor = await connection.execute(_CLOSED_RUNS, [self._project_id, list(run_ids)])
            return {
                run_id: "run_deleted" if is_deleted else "run_of_spans"
                async for run_id, is_deleted in cursor
            }


def _run_of_event(written: Event) -> UUID:
    return written.root_plan_id


# --- The writer.

Written = TypeVar("Written")

SMALL_SIZE = 16 * 2**10
"""Texts with fewer characters are redacted in the event loop, which is faster than a thread."""

_redaction_threads = ThreadPoolExecutor(2, thread_name_prefix="tracer-redaction")
"""More threads would use more memory but not be faster, because Python runs one at a time. The work
of a caller that is cancelled runs to its end, so at most two requests are redacted for nobody."""

WRITE_SECONDS = 20.0
"""How many seconds a write may wait, so that a client gets a 503 before it gives up."""

OnCommit = Callable[[str, float], None]
"""Receives, after a batch, `events` or `spans`, and its seconds."""


@dataclass(frozen=True, kw_only=True)
class ProjectRedaction:
    """Redacts events and spans by a project's policy for payloads."""

    settings: SettingsOfProject
    events: Redaction
    spans: Redaction

    async def redact_events(self, events: Sequence[Event], seconds: float) -> Sequence[Event]:
        """Redact events. Wait at most `seconds` for the policy."""
        redact = partial(redacted_events, events, self.events.of_write())
        return await self._redacted(redact, sum(map(text_size, events)), seconds)

    async def redact_traces(self, traces: Sequence[TraceSpans], seconds: float) -> list[TraceSpans]:
        """Redact spans. Wait at most `seconds` for the policy."""
        redact = partial(redacted_traces, traces, self.spans)
        return await self._redacted(redact, sum(len(trace.message) for trace in traces), seconds)

    async def _redacted(
        self, redact: Callable[[PayloadPolicy], Written], size: int, seconds: float
    ) -> Written:
        # Only the policy has a time limit. The duration of redaction depends on the items alone, so
        # a client that sent them again would fail again.
        async with asyncio.timeout(seconds):
            policy = (await self.settings.known()).payloads
        if size < SMALL_SIZE:
            return redact(policy)
        return await asyncio.get_running_loop().run_in_executor(_redaction_threads, redact, policy)


@dataclass(frozen=True, kw_only=True)
class PostgresWriter:
    """`TraceWriter` over a project's connections. `postgres_writer` creates one with its parts."""

    events: PostgresEvents
    spans: PostgresSpans
    leases: PostgresLeases
    deletion: PostgresDeletion
    redaction: ProjectRedaction
    notify: Notify
    settle: Settle | None
    """Projects pending runs before runs are selected by the content of their records."""
    write_seconds: float
    """How many seconds a write may wait."""

    def for_recorder(self) -> PostgresWriter:
        """Return a writer for a recorder of this process, which has redacted its events.

        It differs from this writer only in that it does not redact events again.
        """
        unmasked = replace(self.redaction, events=Redaction.off())
        return replace(self, redaction=unmasked)

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`."""
        with store_errors():
            redacted = await self.redaction.redact_events(events, self.write_seconds)
            async with asyncio.timeout(self.write_seconds):
                refused = await self.events.write(redacted)
        self.notify.written({event.root_plan_id for event in events})
        return WriteAnswer.without(refused, events)

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store spans."""
        with store_errors():
            redacted = await self.redaction.redact_traces(traces, self.write_seconds)
            async with asyncio.timeout(self.write_seconds):
                refused = await self.spans.write(redacted)
        self.notify.accepted({root_plan_id(trace.trace_id) for trace in traces})
        return WriteAnswer(sum(trace.count for trace in traces) - len(refused), refused)

    async def delete_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> None:
        """Delete a run, by default with the runs that continue it, and leave tombstones."""
        await self.deletion.erase_run(root_plan_id, all_parts=all_parts)

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete every run of a subject."""
        stored = stored_subject(subject, self.redaction.spans)
        return await self.deletion.erase_subject(stored, self.settle)

    async def delete_session(self, session_id: str) -> Erasure:
        """Delete every run of a session."""
        return await self.deletion.erase_session(storable(session_id), self.settle)

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease."""
        with store_errors():
            return await self.leases.renew(recorder_id)

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run."""
        with store_errors():
            run = await self.events.request_cancel(root_plan_id)
            parts = await self.events.open_parts(root_plan_id)
            for part in parts:
                await self.events.request_cancel(part)
        self.notify.written({root_plan_id, *parts})
        if run.status.is_ending and not parts:
            raise RunNotActive()
        return run


@dataclass(frozen=True, kw_only=True)
class WriterOptions:
    """Options of a writer. The defaults are those of a program that records into the database."""

    clock: Clock = utc_now
    """The source of `recorded_at`."""
    lease_clock: Clock | None = None
    """The clock of leases and of the due times of spans; None: the database's own."""
    terms: LeaseTerms = DEFAULT_TERMS
    """The lengths of leases."""
    notify: Notify = NOTIFY_NOBODY
    """Receives the runs that were written, and those whose new spans must be projected."""
    on_commit: OnCommit = lambda _written, _seconds: None
    """Called after each batch of writes."""
    redaction: Redaction | None = None
    """Masks secrets; None: with the standard rules."""
    settings: SettingsOfProject | None = None
    """The project's settings; None: they are read from the database."""
    prices: ModelPrices | None = None
    """The project's prices; None: they are read from the database."""
    settle: Settle | None = None
    """Projects pending runs before runs are selected by the content of their records."""
    write_seconds: float = WRITE_SECONDS
    """How many seconds a write may wait."""
    max_run_bytes: int = MAX_RUN_BYTES
    """The largest size of a run's spans."""
    max_run_spans: int = MAX_RUN_SPANS
    """The largest number of a run's spans and log records."""


DEFAULT_OPTIONS = WriterOptions()


def postgres_writer(
    project: ProjectPool, options: WriterOptions = DEFAULT_OPTIONS
) -> PostgresWriter:
    """Create a writer of a project with its parts."""
    clock, on_commit, notify = options.clock, options.on_commit, options.notify
    redaction = options.redaction or standard_redaction()
    leases = PostgresLeases(project, options.terms, options.lease_clock)
    prices = options.prices or ModelPrices(project)
    rows = EventRows(project, leases.heartbeats, prices.known)
    return PostgresWriter(
        events=PostgresEvents(project, rows, clock, partial(on_commit, "events")),
        spans=PostgresSpans(
            project,
            clock,
            options.lease_clock,
            partial(on_commit, "spans"),
            options.max_run_bytes,
            options.max_run_spans,
        ),
        leases=leases,
        deletion=PostgresDeletion(project, notify.written, clock),
        redaction=ProjectRedaction(
            settings=options.settings or SettingsOfProject(project),
            events=redaction,
            spans=redaction,
        ),
        notify=notify,
        settle=options.settle,
        write_seconds=options.write_seconds,
    )
