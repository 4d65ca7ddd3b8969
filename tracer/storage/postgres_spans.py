"""Spans in Postgres: kept as they came, and projected into the records of their runs.

One transaction locks the runs, keeps the spans and makes the runs' records what the projection
says. Writes that come at the same time share it. Where the writer knows what a run has, because it
made it or wrote to it last, new rows go straight into the tables and nothing is read. Else all
spans of the run are read, and its records replaced. The number of statements does not depend on
how many spans, runs or records there are, as long as the rows of one statement fit into one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from psycopg import AsyncRawCursor

from tracer.clock import Clock
from tracer.merge import Key, Reduced
from tracer.otel.decode import decode_protobuf
from tracer.otel.span_fields import root_plan_id
from tracer.otel.spans import Span, merge_spans
from tracer.otel.wire import bytes_field
from tracer.records import RECORDS, Kind
from tracer.storage.agreements import LATEST, REFUSED_SPANS
from tracer.storage.changed_hours import MARK_CALLS
from tracer.storage.citus import is_spread, written_apart
from tracer.storage.engine import PoolConnection
from tracer.storage.group_commit import GroupCommit, OnGroup
from tracer.storage.json_rows import json_batches
from tracer.storage.known_traces import KnownTrace, KnownTraces
from tracer.storage.postgres_leases import PostgresLeases
from tracer.storage.project_pool import (
    ProjectPool,
    Row,
    Statement,
    as_owner,
    committed,
    transaction_in,
)
from tracer.storage.projected_changes import RecordChanges
from tracer.storage.projected_runs import whole
from tracer.storage.restore_statements import restore_rows
from tracer.storage.row_copies import COPY_ROWS, copy_records, copy_spans
from tracer.storage.signs_of_life import NO_SIGNS, Signs, has_open_records
from tracer.storage.span_statements import (
    KEEP_SPANS,
    READ_SPANS,
    UPDATE_RUNS,
    locking_runs_of_spans,
    removing,
    replacing,
)
from tracer.storage.write_errors import UNSTORABLE, Numbered, outlasting_collisions, refused_of
from tracer.store import Refusal
from tracer.text import escape

_STATEMENT_BYTES = 32_000_000
_FROM_SPANS = "spans"

SMALL_BYTES = 256 * 2**10
"""Below this, projecting takes less time than handing over to a thread, which others wait for."""


@dataclass
class _LockedRun:
    """A run of a write, under its lock."""

    source: str
    revision: int
    spans: list[Span]
    trace: KnownTrace | None
    """What is known of it; None where its spans have to be read."""
    horizon: datetime | None
    """Of what started before, the hour is marked; None where nothing is."""

    @property
    def size(self) -> int:
        """How many bytes of spans its projection is of."""
        return 0 if self.trace is None else self.trace.state.size

    def may_be_old(self, tool_call_id: UUID) -> bool:
        """Return whether one of its projected calls may have started before the horizon."""
        if self.horizon is None or self.trace is None or self.trace.projected is None:
            return False
        call = self.trace.projected.records[Kind.TOOL_CALL].get(tool_call_id, {})
        started_at = call.get("started_at")
        return started_at is None or started_at < self.horizon


class PostgresSpans:
    """The part of a writer that takes spans."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock,
        leases: PostgresLeases,
        on_group: OnGroup,
        copy_rows: float = COPY_ROWS,
    ) -> None:
        self._project = project
        self._project_id = project.project_id
        self._clock = clock
        self._leases = leases
        self._known = KnownTraces()
        self._copy_rows = copy_rows
        self._is_spread = False
        self._together = GroupCommit[Span](
            partial(
                written_apart,
                project.pool,
                _run_of,
                partial(refused_of, written="span", write=self._write),
            ),
            lambda span: span.trace_id,
            on_group,
        )

    @property
    def waiting(self) -> int:
        """How many writes wait for their turn."""
        return self._together.waiting

    async def write(self, spans: Sequence[Span]) -> list[Refusal]:
        """Store what can be stored, and return what cannot."""
        return await self._together.write(spans)

    async def restore(self, spans: Sequence[Span], said: Reduced) -> list[Refusal]:
        """Store what can be stored of an export, and return what cannot.

        Args:
            spans: The spans.
            said: What the export says of the records of their runs.
        """

        async def write(group: list[Numbered[Span]]) -> list[Refusal]:
            return await self._write_versions(group, said)

        restoring = partial(refused_of, written="span", write=write)
        return await written_apart(self._project.pool, _run_of, restoring, list(enumerate(spans)))

    async def _write(self, spans: list[Numbered[Span]]) -> list[Refusal]:
        try:
            return await self._write_versions(spans, trusting=True)
        except UNSTORABLE:
            # COPY is less patient than the statements that merge; and whoever restores a database
            # under a running server makes what is known of it untrue.
            return await self._write_versions(spans)

    async def _write_versions(
        self, spans: list[Numbered[Span]], said: Reduced | None = None, *, trusting: bool = False
    ) -> list[Refusal]:
        by_trace: dict[bytes, list[Span]] = {}
        for span in merge_spans(span for _, span in spans).values():
            by_trace.setdefault(span.trace_id, []).append(span)
        by_run = {root_plan_id(trace_id): found for trace_id, found in by_trace.items()}
        self._is_spread = await is_spread(self._project.pool)
        if self._is_spread:  # where nobody copies behind policies
            self._copy_rows = math.inf
        open_runs = await outlasting_collisions(self._write_once, by_run, said, trusting=trusting)
        if len(open_runs) == len(by_run):
            return []
        return [
            Refusal(index, "run_deleted", REFUSED_SPANS)
            for index, span in spans
            if root_plan_id(span.trace_id) not in open_runs
        ]

    async def _write_once(
        self, by_run: Mapping[UUID, list[Span]], said: Reduced | None, *, trusting: bool
    ) -> set[UUID]:
        """Write in one transaction, and return the runs that take spans.

        Args:
            by_run: One version of each span.
            said: What an export says of the records of their runs.
            trusting: Whether to go by what is known of the runs.
        """
        now = self._clock()
        born = now if said is None else LATEST
        locking = locking_runs_of_spans(is_spread=self._is_spread)
        lock = locking, [self._project_id, born, sorted(by_run)]
        async with transaction_in(self._project, lock) as (connection, locked):
            runs = self._known_of(locked, by_run, trusting=trusting)
            changed, last = await self._keep(connection, now, runs)
            projected = {
                run_id: runs[run_id]
                for run_id in sorted(changed)
                if runs[run_id].source == _FROM_SPANS
            }
            changes = RecordChanges()
            if projected:
                await self._read_unknown(connection, projected)
                if sum(run.size for run in projected.values()) < SMALL_BYTES:
                    _add_changes(changes, projected)
                else:
                    await asyncio.to_thread(_add_changes, changes, projected)
                old = await self._copy_new(connection, born, runs, changes)
                last += self._replacing(born, changes)
                if old:
                    columns = map(list, zip(*old, strict=True))
                    last.append((MARK_CALLS, [self._project_id, *columns]))
            signs = NO_SIGNS
            if said is None and (signs := self._leases.new(_signs_of(projected))):
                last += self._leases.noting(signs)
            if said is not None:
                there: Reduced = {Kind.RUN: {(id_, id_): {} for id_ in runs}, **changes.given}
                last += [
                    (statement, [self._project_id, rows, _FROM_SPANS])
                    for statement, rows in restore_rows(
                        _dated(there, said), now, is_spread=self._is_spread
                    )
                ]
            answers = await committed(connection, last)
        if signs:
            self._leases.remember(signs, answers[-1])
        if said is None:
            for run_id, run in runs.items():
                if run.trace is not None:
                    self._known.keep(run_id, run.revision, run.trace)
        return set(runs)

    def _known_of(
        self, locked: Sequence[Row], by_run: Mapping[UUID, list[Span]], *, trusting: bool
    ) -> dict[UUID, _LockedRun]:
        """Return the runs that were not deleted, with what is known of them."""
        runs: dict[UUID, _LockedRun] = {}
        for run_id, source, revision, horizon in locked:
            known = self._known.take(run_id, revision - 1)
            if revision == 1:
                known = KnownTrace()
            trace = known if trusting and source == _FROM_SPANS else None
            runs[run_id] = _LockedRun(source, revision, by_run[run_id], trace, horizon)
        return runs

    async def _keep(
        self, connection: PoolConnection, now: datetime, runs: Mapping[UUID, _LockedRun]
    ) -> tuple[set[UUID], list[Statement]]:
        """Keep the newer version of each span.

        Returns:
            The runs that this changes, and what is left to be executed for it.
        """
        changed: set[UUID] = set()
        new: list[Span] = []
        given: list[Span] = []
        unknown: list[Span] = []
        for run_id, run in runs.items():
            if run.trace is None:
                unknown += run.spans
                continue
            put = run.trace.state.put(run.spans)
            new += put.new
            given += put.newer
            if put.new or put.newer:
                changed.add(run_id)
        if len(new) < self._copy_rows:
            given += new
        else:
            async with as_owner(connection):
                await copy_spans(connection, now, new)
        for statement in self._keeping(now, unknown):
            cursor = AsyncRawCursor(connection)
            await cursor.execute(*statement)
            changed.update(run_id for (run_id,) in await cursor.fetchall())
        return changed, self._keeping(now, given)

    def _keeping(self, now: datetime, spans: Sequence[Span]) -> list[Statement]:
        """Return what keeps spans where they are newer, and returns their runs."""
        return [
            (
                KEEP_SPANS,
                [
                    *(self._project_id, now),
                    [root_plan_id(span.trace_id) for span in batch],
                    [span.span_id for span in batch],
                    [span.parent_span_id for span in batch],
                    [escape(span.name) for span in batch],
                    [span.start for span in batch],
                    [span.end for span in batch],
                    [span.body for span in batch],
                ],
            )
            for batch in _batches(spans)
        ]

    async def _read_unknown(
        self, connection: PoolConnection, runs: Mapping[UUID, _LockedRun]
    ) -> None:
        """Read all spans of the runs of which nothing is known."""
        unknown = {run_id: run for run_id, run in runs.items() if run.trace is None}
        if not unknown:
            return
        bodies: dict[UUID, list[bytes]] = {run_id: [] for run_id in unknown}
        cursor = AsyncRawCursor(connection)
        await cursor.execute(READ_SPANS, [self._project_id, list(unknown)], binary=True)
        async for run_id, body in cursor:
            bodies[run_id].append(body)
        for run_id, run in unknown.items():
            run.trace = await asyncio.to_thread(_trace_of, bodies.pop(run_id))

    async def _copy_new(
        self,
        connection: PoolConnection,
        now: datetime,
        runs: Mapping[UUID, _LockedRun],
        changes: RecordChanges,
    ) -> list[Key]:
        """Copy the records that are known to be new into the tables, where there are many.

        Returns:
            The calls that this is about whose hours are to be marked.
        """
        copied = {kind: new for kind, new in changes.new.items() if len(new) >= self._copy_rows}
        for kind in changes.new.keys() - copied.keys():
            changes.given[kind] |= changes.new[kind]
        if copied:
            async with as_owner(connection):
                for kind, new in copied.items():
                    found = ((key, runs[key[0]].revision, fields) for key, fields in new.items())
                    await copy_records(connection, now, kind, found)
        calls = [*copied.get(Kind.TOOL_CALL, ())]
        for (run_id, _), plan in copied.get(Kind.PLAN, {}).items():
            if (opener := plan.get("tool_call_id")) is not None:
                calls.append((run_id, opener))
        return [key for key in calls if runs[key[0]].may_be_old(key[1])]

    def _replacing(self, now: datetime, changes: RecordChanges) -> Iterator[Statement]:
        """Yield what makes the other records of the runs what their projections say."""
        cleared = list(changes.cleared)
        runs = [run_id for run_id, _ in changes.runs]
        for kind in RECORDS:
            if cleared:
                keys = changes.ids_of_cleared(kind)
                yield removing(kind, is_spread=self._is_spread), [self._project_id, cleared, keys]
            given = {key: whole(kind, each) for key, each in changes.given[kind].items()}
            for rows in json_batches(kind, given):
                statement = replacing(kind, is_spread=self._is_spread)
                yield statement, [self._project_id, now, rows, runs]
        for rows in json_batches(Kind.RUN, changes.runs):
            yield UPDATE_RUNS, [self._project_id, rows, runs]


def _run_of(span: Span) -> UUID:
    return root_plan_id(span.trace_id)


def _signs_of(projected: Mapping[UUID, _LockedRun]) -> Signs:
    """Return the signs of life of the runs in which something goes on."""
    traces = {run_id: run.trace.projected for run_id, run in projected.items() if run.trace}
    return {
        (run_id, run_id): None
        for run_id, trace in traces.items()
        if trace is not None and has_open_records(trace)
    }


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


def _trace_of(bodies: list[bytes]) -> KnownTrace:
    """Return all spans of a run as they are kept."""
    trace = KnownTrace(is_whole=False)
    trace.state.put(decode_protobuf(b"".join(bytes_field(1, body) for body in bodies)).spans)
    return trace


def _add_changes(changes: RecordChanges, runs: Mapping[UUID, _LockedRun]) -> None:
    """Project the runs; takes a while, and belongs into a thread."""
    for run_id, run in runs.items():
        assert run.trace is not None
        changes.add(run_id, run.trace)
