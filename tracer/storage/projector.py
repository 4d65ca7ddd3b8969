"""The projector: turns the stored spans of due runs into records.

ARCHITECTURE.md ("How spans become records") describes the steps and what each commit relies on. A
projector has one synchronous connection and works on one group of runs at a time. Any number of
them, in any number of processes, share the work.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from google.protobuf.message import DecodeError
from psycopg import RawCursor

from tracer.clock import Clock
from tracer.errors import TracerError
from tracer.leases import DEFAULT_TERMS, LeaseTerms
from tracer.logs import get_logger
from tracer.merge import Reduced
from tracer.otel.blocks import TraceSpans, UnreadableBlock, block_key, pack_block, unpack_block
from tracer.otel.projection.rows import (
    PROJECTED_FIELDS,
    PROJECTION_VERSION,
    RUN_FIELDS,
    ProjectedRun,
    Row,
    fields_of,
    fields_of_run,
    project_run,
    row_of,
)
from tracer.otel.span_fields import EPOCH, root_plan_id
from tracer.records import RECORDS, Kind
from tracer.status import Status
from tracer.storage import projection_statements as sql
from tracer.storage.agreements import LATEST
from tracer.storage.changed_hours import MARK_CALLS
from tracer.storage.copy_rows import digest_of, no_rows, pack_row
from tracer.storage.json_rows import json_batches
from tracer.storage.notifications import notify_written
from tracer.storage.program_role import PROGRAM_ROLE, STANDING, Standing
from tracer.storage.restore_statements import restore_rows
from tracer.storage.span_blocks import span_message
from tracer.storage.write_errors import COLLISIONS, UNSTORABLE
from tracer.store import MAX_RUN_BYTES
from tracer.versions import Fields

Connection = psycopg.Connection[tuple[Any, ...]]


class ProjectRunKey(NamedTuple):
    """A run of some project."""

    project_id: int
    root_plan_id: UUID


MOST_SPANS = 200_000
"""A run with more spans than that is not projected."""

GROUP_BYTES = 1_200_000
"""Runs share a transaction up to this uncompressed size: about 1,000 spans."""

GROUP_RUNS = 200

DUE_AT_ONCE = 500
"""How many due runs are listed at a time."""

ALONE_FROM = 3
"""A run whose projection failed that often shares no transaction."""

SETTLE_SECONDS = 600.0
"""The blocks of a run are merged when no span of it has arrived for that long."""

log = get_logger(__name__)

_OPEN = (Status.PENDING, Status.RUNNING)
_STATUS = {kind: PROJECTED_FIELDS[kind].index("status") for kind in RECORDS}
_ABANDONED_AT = {kind: PROJECTED_FIELDS[kind].index("abandoned_at") for kind in RECORDS}
_STARTED_AT = PROJECTED_FIELDS[Kind.TOOL_CALL].index("started_at")
_OPENER = PROJECTED_FIELDS[Kind.PLAN].index("tool_call_id")
_COST = PROJECTED_FIELDS[Kind.THINK_ACT].index("cost_usd")
_USAGE = ("requested_model", "model", "input_tokens", "output_tokens")
_USAGE_PLACES = [PROJECTED_FIELDS[Kind.THINK_ACT].index(name) for name in _USAGE]
_RUN_COST = RUN_FIELDS.index("cost_usd")
_COMPARED = [name for name in RUN_FIELDS if name not in ("cancel_requested_at", "abandoned_at")]
_MICROSECOND = timedelta(microseconds=1)


class TooManySpans(TracerError):
    """A run has more spans than are projected."""


class TookTooLong(BaseException):
    """The time for the projection of a run is over. No `except Exception` of a dialect hides it."""


@dataclass(frozen=True)
class TimeLimits:
    """How many seconds the projection of one run may take, in the main thread of a process."""

    in_group: float = 0.5
    """If other runs of the group wait for it. Runs share a group up to 1.2 MB of spans, which take
    some 70 ms."""
    alone: float = 55.0
    """If it is alone. The server ends a projector that spends 60 s on a group."""


@dataclass(frozen=True)
class Round:
    """The result of one look at the due runs."""

    projected: int = 0
    """How many runs were projected."""
    spans: int = 0
    """How many spans they have."""
    failures: int = 0
    """How many projections failed."""
    seconds: float = 0.0
    """The time that the projections took."""
    next_due_in: float | None = None
    """Seconds until the next pending run is due; None if none is pending."""

    def __add__(self, other: Round) -> Round:
        return Round(
            self.projected + other.projected,
            self.spans + other.spans,
            self.failures + other.failures,
            self.seconds + other.seconds,
            other.next_due_in,
        )


@dataclass
class Attempt:
    """A claimed run, and what of it is pending."""

    run_id: UUID
    arrived: int
    spans: int
    size: int
    seen_at: datetime | None
    with_prices: bool = False


@dataclass
class StoredSpans:
    """The spans of a run as they are stored."""

    projected: int = 0
    """The run's, before."""
    messages: list[bytes] = field(default_factory=list)
    arrivals: list[datetime] = field(default_factory=list)
    """When each message arrived; ascending."""
    spans: int = 0
    """The number of span versions."""
    size: int = 0
    error: UnreadableBlock | None = None
    """Why one of the blocks cannot be read."""


@dataclass
class Computed:
    """The projection of a run, ready to be written."""

    attempt: Attempt
    stored: StoredSpans
    rows: ProjectedRun
    packed: dict[Kind, dict[bytes, tuple[bytes, int]]]
    """Each row as it is copied, with its digest."""
    seconds: float


_Digests = dict[UUID, dict[Kind, dict[bytes, int]]]


class Projector:
    """Projects runs over one connection, which must stay with one backend and autocommit."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        terms: LeaseTerms = DEFAULT_TERMS,
        on_begin: Callable[[Sequence[ProjectRunKey]], None] = lambda _: None,
        limits: TimeLimits | None = None,
    ) -> None:
        """Take a connection.

        Args:
            connection: To the database, as the owner of the tables.
            clock: What due times go by; None: the database's own clock.
            terms: How long a run counts as alive after its newest span.
            on_begin: Is called before each group of runs with these.
            limits: How long one projection may take; None: any time. Needs the main thread.
        """
        self._connection = connection
        self._clock = clock
        self._terms = terms
        self._on_begin = on_begin
        self._limits = limits
        self._standing: Standing | None = None
        self._has_span_rows = True

    # --- What is due -----------------------------------------------------------------------------

    def project_due(self, now: datetime | None = None) -> Round:
        """Project the runs that are due and that nobody else has claimed.

        Args:
            now: The time; None: the clock's.

        Raises:
            psycopg.OperationalError: The database does not answer. Nothing acknowledged is lost.
        """
        now = now or self._now()
        done = Round()
        ((seconds,),) = self._ask(sql.NEXT_DUE, now)
        if seconds is not None and seconds <= 0:  # otherwise one query is enough
            for project_id, runs in self._due_groups(now):
                done += self._project_group(project_id, runs, now, is_due=True)
            ((seconds,),) = self._ask(sql.NEXT_DUE, now)
        return done + Round(next_due_in=seconds)

    def project_run(self, project_id: int, root_plan_id: UUID) -> bool:
        """Project a run now if it is pending, and return whether it was projected.

        It is not if somebody else has claimed it, if nothing is pending, or if it fails.
        """
        done = self._project_group(project_id, [root_plan_id], self._now(), is_due=False)
        return bool(done.projected)

    def restore(
        self, project_id: int, trace: TraceSpans, said: Reduced, now: datetime
    ) -> str | None:
        """Store the spans of one run and what an export contains about its records.

        In one transaction, which leaves nothing pending. If the projection fails, the spans are
        stored and the run's `projection_error` says why.

        Args:
            project_id: The project.
            trace: The spans.
            said: What the export says of the records of the run.
            now: When they are recorded if the export does not say that.

        Returns:
            The code of the refusal if the run takes no spans, else None.
        """
        run_id = root_plan_id(trace.trace_id)
        with self._in_project(project_id):
            self._ask(sql.INSERT_RUNS, project_id, LATEST, [run_id])
            locked = self._ask(sql.LOCK_RUNS, project_id, [run_id])
            if not locked:
                return "run_deleted"
            _, source, projected, _, size = locked[0]
            if size + len(trace.message) > MAX_RUN_BYTES:
                return "run_too_large"
            added = self._ask(
                sql.INSERT_BLOCKS, project_id, now, *map(list, zip(block_row(trace), strict=True))
            )
            if source != "spans":
                if added:
                    self._ask(sql.GROW_RUNS, project_id, [run_id], [len(trace.message)])
                return None
            pending = [run_id], [projected], [trace.count], [len(trace.message)], [None]
            self._ask(sql.ADD_PENDING, project_id, self._now(), *pending)
            ((_, arrived, _, spans, size, _, with_prices),) = self._ask(
                sql.ATTEMPT, project_id, [run_id], self._now(), True
            )
            attempt = Attempt(run_id, arrived, spans, size, None, with_prices)
            stored = StoredSpans(projected)
            self._read_spans(project_id, {run_id: stored})
            stored.arrivals = [LATEST] * len(stored.arrivals)
            try:
                computed = _computed(attempt, stored)
            except Exception as error:  # as in `project_claimed`
                self._ask(
                    sql.NOTE_FAILURES, project_id, self._now(), [run_id], [_reason(error)], [True]
                )
                return None
            known = self._read_digests(project_id, [run_id] if projected else [])
            self._write_locked(project_id, [computed], known, self._now(), is_restored=True)
            there: Reduced = {
                Kind.RUN: {(run_id, run_id): {}},
                **{
                    kind: {(run_id, UUID(bytes=record_id)): {} for record_id in found}
                    for kind, found in computed.rows.rows.items()
                },
            }
            is_spread = self._stand().is_spread
            for statement, rows in restore_rows(_dated(there, said), now, is_spread=is_spread):
                self._ask(statement, project_id, rows, "spans")
            self._check_references()
        notify_written(self._connection, [run_id])
        return None

    def _due_groups(self, now: datetime | None) -> Iterator[tuple[int, list[UUID]]]:
        """Yield the due runs in groups of one project each; projects take turns."""
        is_spread = self._stand().is_spread  # a transaction cannot lock runs on two shards
        groups: dict[int, tuple[list[UUID], int]] = {}
        for project_id, run_id, attempts, size in self._ask(
            sql.DUE, now, DUE_AT_ONCE, PROJECTION_VERSION
        ):
            if attempts >= ALONE_FROM or is_spread:
                yield project_id, [run_id]
                continue
            runs, total = groups.pop(project_id, ([], 0))
            if runs and (total + size > GROUP_BYTES or len(runs) == GROUP_RUNS):
                yield project_id, runs
                runs, total = [], 0
            runs.append(run_id)
            groups[project_id] = runs, total + size
        for project_id, (runs, _) in groups.items():
            yield project_id, runs

    # --- One group -------------------------------------------------------------------------------

    def _project_group(
        self, project_id: int, runs: list[UUID], now: datetime | None, *, is_due: bool
    ) -> Round:
        claimed = [run_id for (run_id,) in self._ask(sql.CLAIM, project_id, runs)]
        if not claimed:
            return Round()
        try:
            return self.project_claimed(project_id, claimed, now, is_due=is_due)
        finally:
            if not self._connection.closed:
                self._ask(sql.RELEASE, project_id, claimed)

    def project_claimed(
        self, project_id: int, runs: list[UUID], now: datetime | None, *, is_due: bool
    ) -> Round:
        """Project runs whose claims the caller holds. The claims save work and prove nothing."""
        begin = time.monotonic()
        attempts, failures = [], {}
        for run_id, arrived, number, *rest in self._ask(
            sql.ATTEMPT, project_id, runs, now, not is_due
        ):
            if number > sql.MOST_ATTEMPTS:
                failures[run_id] = _ENDED_THE_PROCESS, True
            else:
                attempts.append(Attempt(run_id, arrived, *rest))
        if attempts:
            self._on_begin([ProjectRunKey(project_id, attempt.run_id) for attempt in attempts])
        stored = self._read(project_id, [attempt.run_id for attempt in attempts])
        computed = []
        for attempt in attempts:
            if (spans := stored.pop(attempt.run_id, None)) is None:
                continue  # it was deleted, or a newer version of the program projected it
            try:
                with _time_limit(self._seconds_for(len(attempts))):
                    computed.append(_computed(attempt, spans))
            except TookTooLong:
                failures[attempt.run_id] = _TOOK_TOO_LONG, False
            except Exception as error:  # whatever a dialect raises costs no other run
                failures[attempt.run_id] = _reason(error), isinstance(error, TooManySpans)
        written = self._write_each(project_id, computed, now, failures)
        if failures:
            self._note_failures(project_id, failures, now)
        return Round(
            projected=len(written),
            spans=sum(each.rows.spans for each in written),
            failures=len(failures),
            seconds=time.monotonic() - begin,
        )

    def _seconds_for(self, runs: int) -> float | None:
        if self._limits is None:
            return None
        return self._limits.in_group if runs > 1 else self._limits.alone

    def _read(self, project_id: int, runs: list[UUID]) -> dict[UUID, StoredSpans]:
        """Return the stored spans of runs that are there; `projected` first, then the blocks."""
        found: dict[UUID, StoredSpans] = {}
        if not runs:
            return found
        # In one snapshot: `tracer pack-spans` moves spans from one table to the other.
        with self._in_project(project_id, "ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            for run_id, projected, version in self._ask(sql.READ_RUNS, project_id, runs):
                if version <= PROJECTION_VERSION:
                    found[run_id] = StoredSpans(projected)
            self._read_spans(project_id, found)
        return found

    def _read_spans(self, project_id: int, runs: dict[UUID, StoredSpans]) -> None:
        """Add their messages to runs."""
        ids = list(runs)
        for run_id, recorded_at, spans, size, body in self._ask(sql.READ_BLOCKS, project_id, ids):
            of_run = runs[run_id]
            try:
                of_run.messages.append(unpack_block(body))
            except UnreadableBlock as error:  # it must not stop the other runs of the group
                of_run.error = error
            of_run.arrivals.append(recorded_at)
            of_run.spans += spans
            of_run.size += size
        if self._has_span_rows:
            self._has_span_rows = bool(self._ask(sql.HAS_SPAN_ROWS)[0][0])
            for run_id, recorded_at, body in self._ask(sql.READ_SPAN_ROWS, project_id, ids):
                # They are older than any block.
                of_run = runs[run_id]
                place = len(of_run.messages) if not of_run.size else 0
                of_run.messages.insert(place, span_message([body]))
                of_run.arrivals.insert(place, recorded_at)
                of_run.spans += 1

    # --- Write -----------------------------------------------------------------------------------

    def _write_each(
        self,
        project_id: int,
        group: list[Computed],
        now: datetime | None,
        failures: dict[UUID, tuple[str, bool]],
    ) -> list[Computed]:
        """Write projections together, or one by one if Postgres rejects a row of the group.

        Returns:
            Those that were written. Those that Postgres rejects are added to `failures`.
        """
        try:
            return self._write(project_id, group, now)
        except UNSTORABLE as error:
            if len(group) == 1:
                failures[group[0].attempt.run_id] = _reason(error), False
                return []
        except COLLISIONS:
            if len(group) == 1:
                return []  # it is still due
        return [
            each for one in group for each in self._write_each(project_id, [one], now, failures)
        ]

    def _write(
        self, project_id: int, group: list[Computed], now: datetime | None
    ) -> list[Computed]:
        """Write projections in one transaction, and return those that could be written."""
        if not group:
            return []
        with self._in_project(project_id):
            known = self._read_digests(
                project_id, [each.attempt.run_id for each in group if each.stored.projected]
            )
            written, changed = self._write_locked(project_id, group, known, now)
            self._check_references()
        if changed:
            notify_written(self._connection, changed)
        return written

    def _write_locked(
        self,
        project_id: int,
        group: list[Computed],
        known: _Digests,
        now: datetime | None,
        *,
        is_restored: bool = False,
    ) -> tuple[list[Computed], list[UUID]]:
        """Lock runs, write their rows, and end their pending state, in the caller's transaction.

        Returns:
            The projections that were written, and the runs whose revisions grew.
        """
        by_run = {each.attempt.run_id: each for each in group}
        locking = sql.locking_projected_runs(is_spread=self._stand().is_spread)
        writing = _Writing(project_id)
        written: list[Computed] = []
        for run_id, projected, revision, _, error, *shown, horizon in self._ask(
            locking, project_id, list(by_run)
        ):
            each = by_run[run_id]
            if projected != each.stored.projected:
                continue  # somebody else projected it
            self._keep_costs(project_id, each, known.get(run_id))
            run = fields_of_run(each.rows.run)
            is_changed = (
                is_restored
                or error is not None
                or any(
                    run[name] != value
                    for name, value in zip(RUN_FIELDS, shown, strict=True)
                    if name in _COMPARED
                )
            )
            writing.add(each, known.get(run_id, {}), revision, horizon, is_changed, run)
            written.append(each)
        if written:
            self._execute(project_id, writing, now)
            self._ask(
                sql.FINISH,
                project_id,
                [each.attempt.run_id for each in written],
                [each.attempt.arrived for each in written],
                [each.attempt.spans for each in written],
                [each.attempt.size for each in written],
            )
            self._note_signs(project_id, written)
        return written, writing.changed

    def _execute(self, project_id: int, writing: _Writing, now: datetime | None) -> None:
        is_spread = self._stand().is_spread
        runs = [run_id for run_id, _ in writing.runs]
        for batch in json_batches(Kind.RUN, writing.runs):
            self._ask(sql.UPDATE_RUNS, project_id, now, batch, runs)
        for kind in RECORDS:
            if gone := writing.gone[kind]:
                self._ask(sql.removing(kind, is_spread=is_spread), project_id, runs, gone)
        if is_spread:  # no `COPY` behind policies
            for kind in RECORDS:
                for run_id, record_id, at, row, digest in writing.new[kind]:
                    writing.changes[kind][run_id, UUID(bytes=record_id)] = {
                        **fields_of(kind, row),
                        "recorded_at": at,
                        "digest": digest,
                    }
        else:
            self._copy(project_id, writing)
        for kind in RECORDS:
            for batch in json_batches(kind, writing.changes[kind]):
                statement = sql.replacing(kind, is_spread=is_spread)
                self._ask(statement, project_id, batch, runs, writing.silent)
            if writing.digests[kind]:
                columns = map(list, zip(*writing.digests[kind], strict=True))
                self._ask(sql.SET_DIGESTS[kind], project_id, *columns)
        if writing.old_calls:
            columns = map(list, zip(*writing.old_calls, strict=True))
            self._ask(MARK_CALLS, project_id, *columns)

    def _copy(self, project_id: int, writing: _Writing) -> None:
        copies = no_rows(project_id)
        for kind, rows in writing.new.items():
            for run_id, record_id, at, row, digest in rows:
                packed = writing.packed[run_id][kind][record_id][0]
                copies[kind].add(
                    run_id.bytes,
                    writing.revisions[run_id],
                    record_id,
                    (at - EPOCH) // _MICROSECOND,
                    row,
                    packed,
                    digest,
                )
        if any(copies.values()):
            self._become(None)  # policies allow no `COPY`
            for each in copies.values():
                if each:
                    with self._connection.cursor().copy(each.statement) as copy:
                        for chunk in each.chunks():
                            copy.write(chunk)
            self._become(project_id)

    def _keep_costs(
        self, project_id: int, each: Computed, known: dict[Kind, dict[bytes, int]] | None
    ) -> None:
        """Give think-acts the cost that they have if it was computed and the usage is the same.

        So the same run does not cost something else after an update of the price list.
        """
        if known is None or each.attempt.with_prices or not each.rows.priced:
            return
        digests, packed = known[Kind.THINK_ACT], each.packed[Kind.THINK_ACT]
        changed = [
            record_id
            for record_id in each.rows.priced
            if digests.get(record_id, packed[record_id][1]) != packed[record_id][1]
        ]
        if not changed:
            return
        rows = each.rows.rows[Kind.THINK_ACT]
        total: Decimal = each.rows.run[_RUN_COST]
        ids = [UUID(bytes=record_id) for record_id in changed]
        for _, think_act_id, cost, *usage in self._ask(
            sql.READ_COSTS, project_id, [each.attempt.run_id], ids
        ):
            record_id, row = think_act_id.bytes, rows[think_act_id.bytes]
            if cost is not None and usage == [row[place] for place in _USAGE_PLACES]:
                total += cost - row[_COST]
                row = rows[record_id] = (*row[:_COST], cost, *row[_COST + 1 :])
                packed[record_id] = _packed(Kind.THINK_ACT, row)
        run = each.rows.run
        each.rows.run = (*run[:_RUN_COST], total, *run[_RUN_COST + 1 :])

    def _read_digests(self, project_id: int, runs: list[UUID]) -> _Digests:
        """Return the digests of all records of runs; rows without one are read and packed."""
        found: _Digests = {run_id: {kind: {} for kind in RECORDS} for run_id in runs}
        if not runs:
            return found
        for kind in RECORDS:
            lacks_digests = False
            for run_id, record_id, digest in self._ask(sql.READ_DIGESTS[kind], project_id, runs):
                found[run_id][kind][record_id.bytes] = digest
                lacks_digests |= digest is None
            if lacks_digests:
                for run_id, record_id, *values in self._ask(sql.READ_ROWS[kind], project_id, runs):
                    values[_ABANDONED_AT[kind]] = None  # the reaper's, not the projection's
                    digest = _packed(kind, row_of(values))[1]
                    # As something that is not a digest: equal rows are given theirs.
                    found[run_id][kind][record_id.bytes] = _Missing(digest)
        return found

    def _note_signs(self, project_id: int, written: list[Computed]) -> None:
        signs = {
            each.attempt.run_id: each.attempt.seen_at
            for each in written
            if each.attempt.seen_at is not None and _has_open_records(each.rows)
        }
        if signs:
            runs, moments = [*signs], [*signs.values()]
            of_runs, of_leases = sql.NOTE_SIGNS
            self._ask(of_runs, project_id, runs)
            self._ask(of_leases, project_id, runs, moments, self._terms.silence)

    def _note_failures(
        self, project_id: int, failures: dict[UUID, tuple[str, bool]], now: datetime | None
    ) -> None:
        runs = list(failures)
        reasons, finals = map(list, zip(*failures.values(), strict=True))
        with self._in_project(project_id):
            self._ask(sql.locking_projected_runs(is_spread=True), project_id, runs)
            changed = self._ask(sql.NOTE_FAILURES, project_id, now, runs, reasons, finals)
        if changed:
            given_up = [run_id for (run_id,) in changed]
            for run_id in given_up:
                reason, _ = failures[run_id]
                log.error(
                    "projection_failed",
                    project_id=project_id,
                    root_plan_id=str(run_id),
                    reason=reason,
                )
            notify_written(self._connection, given_up)

    # --- The connection --------------------------------------------------------------------------

    def _ask(self, statement: str, *given: Any) -> list[tuple[Any, ...]]:
        cursor = RawCursor(self._connection)
        cursor.execute(statement, given, prepare=True, binary=True)
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _in_project(self, project_id: int, mode: str = "") -> Iterator[None]:
        """Have a transaction that row-level security restricts to a project."""
        with self._connection.transaction():
            if mode:
                self._connection.execute(f"SET TRANSACTION {mode}")
            self._become(project_id)
            yield

    def _check_references(self) -> None:
        """Raise an error for a broken reference here: the driver loses a connection at a commit."""
        if not self._stand().is_spread:
            self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _become(self, project_id: int | None) -> None:
        """Enter a project, or be the tables' owner again, within a transaction."""
        role = PROGRAM_ROLE if project_id is not None and self._stand().is_walled else "none"
        settings = f"SET LOCAL ROLE {role}"
        if project_id is not None:
            settings += f"; SET LOCAL tracer.project_id TO {int(project_id)}"
        self._connection.execute(settings)

    def _stand(self) -> Standing:
        if self._standing is None:
            [found] = self._connection.execute(STANDING).fetchall()
            self._standing = Standing(*found)
        return self._standing

    def _now(self) -> datetime | None:
        return self._clock and self._clock()


class _Missing(int):
    """The digest of a stored row that was written before there were digests."""


_NewRow = tuple[UUID, bytes, datetime, Row, int]
"""The run, the record's id, when it was recorded, the row, its digest."""


class _Writing:
    """What a transaction writes."""

    def __init__(self, project_id: int) -> None:
        self.project_id = project_id
        self.runs: dict[tuple[UUID, UUID], Fields] = {}
        self.changed: list[UUID] = []
        self.silent: list[UUID] = []
        """The runs that are projected although no span of them arrived."""
        self.revisions: dict[UUID, int] = {}
        self.packed: dict[UUID, dict[Kind, dict[bytes, tuple[bytes, int]]]] = {}
        self.new: dict[Kind, list[tuple[UUID, bytes, datetime, Row, int]]] = {
            k: [] for k in RECORDS
        }
        self.changes: dict[Kind, dict[tuple[UUID, UUID], Fields]] = {k: {} for k in RECORDS}
        self.gone: dict[Kind, list[UUID]] = {k: [] for k in RECORDS}
        self.digests: dict[Kind, list[tuple[UUID, UUID, int]]] = {k: [] for k in RECORDS}
        self.old_calls: list[tuple[UUID, UUID]] = []

    def add(
        self,
        each: Computed,
        known: dict[Kind, dict[bytes, int]],
        revision: int,
        horizon: datetime | None,
        is_changed: bool,
        run: Fields,
    ) -> None:
        """Add a run.

        Args:
            each: Its projection.
            known: The digests of its stored records; empty before its first projection.
            revision: Its revision so far.
            horizon: Changes of calls before this moment are marked for the statistics.
            is_changed: Whether the run's own fields change.
            run: These fields.
        """
        attempt, stored, rows = each.attempt, each.stored, each.rows
        run_id = attempt.run_id
        later, arrivals = rows.later, stored.arrivals
        is_root_written = False
        for kind, packed in each.packed.items():
            digests = known.get(kind, {})
            of_kind = rows.rows[kind]
            for record_id, (_, digest) in packed.items():
                stored_digest = digests.get(record_id)
                if stored_digest == digest:
                    if isinstance(stored_digest, _Missing):
                        self.digests[kind].append((run_id, UUID(bytes=record_id), digest))
                    continue
                is_changed = True
                is_root_written |= record_id == rows.root_plan_id
                at = arrivals[later.get(record_id, 0)]
                if stored_digest is None:
                    self.new[kind].append((run_id, record_id, at, of_kind[record_id], digest))
                else:
                    self.changes[kind][run_id, UUID(bytes=record_id)] = {
                        **fields_of(kind, of_kind[record_id]),
                        "recorded_at": at,
                        "digest": digest,
                    }
            if gone := digests.keys() - packed.keys():
                is_changed = True
                self.gone[kind] += [UUID(bytes=record_id) for record_id in gone]
        if horizon is not None:
            self._add_old_calls(run_id, rows, horizon)
        if attempt.seen_at is None:
            self.silent.append(run_id)
        if is_changed:
            revision += 1
            self.changed.append(run_id)
        self.revisions[run_id] = revision
        self.packed[run_id] = each.packed
        self.runs[run_id, run_id] = {
            **run,
            "revision": revision,
            "projected": attempt.arrived,
            "projection_version": PROJECTION_VERSION,
            "seconds": each.seconds,
            "span_bytes": stored.size,
            "settle_seconds": _settle_seconds(stored, rows.spans),
            "is_root_written": is_root_written and attempt.seen_at is not None,
        }

    def _add_old_calls(self, run_id: UUID, rows: ProjectedRun, horizon: datetime) -> None:
        """Add the calls that new rows are about and that may have started before the horizon."""
        calls = rows.rows[Kind.TOOL_CALL]
        before = (horizon - EPOCH) // _MICROSECOND
        about = [each[1] for each in self.new[Kind.TOOL_CALL] if each[0] == run_id]
        about += [
            each[3][_OPENER]
            for each in self.new[Kind.PLAN]
            if each[0] == run_id and each[3][_OPENER] is not None
        ]
        for call_id in about:
            started_at = calls[call_id][_STARTED_AT] if call_id in calls else None
            if started_at is None or started_at < before:
                self.old_calls.append((run_id, UUID(bytes=call_id)))


def block_row(trace: TraceSpans) -> tuple[UUID, bytes, int, int, bytes]:
    """Return the spans of one trace as values for `INSERT_BLOCKS`."""
    message = trace.message
    return (
        root_plan_id(trace.trace_id),
        block_key(message),
        trace.count,
        len(message),
        pack_block(message),
    )


def _computed(attempt: Attempt, stored: StoredSpans) -> Computed:
    """Return the projection of a run.

    Raises:
        TooManySpans: It has more than are projected.
        UnreadableBlock: One of its blocks is damaged.
        Exception: A dialect failed.
    """
    begin = time.monotonic()
    if stored.error is not None:
        raise stored.error
    rows = project_run(stored.messages)
    if rows.spans > MOST_SPANS:
        raise TooManySpans(f"{rows.spans} spans")
    packed = {
        kind: {record_id: _packed(kind, row) for record_id, row in found.items()}
        for kind, found in rows.rows.items()
    }
    return Computed(attempt, stored, rows, packed, time.monotonic() - begin)


def _dated(there: Reduced, said: Reduced) -> Reduced:
    """Return what exports say of the records that are there, and of others of their runs."""
    run_ids = {run_id for run_id, _ in there[Kind.RUN]}
    others = {kind: {key for key in said[kind] if key[0] in run_ids} for kind in Kind}
    return {
        kind: {key: said[kind].get(key, {}) for key in there[kind].keys() | others[kind]}
        for kind in Kind
    }


def _packed(kind: Kind, row: Row) -> tuple[bytes, int]:
    packed = pack_row(kind, row)
    return packed, digest_of(packed)


def _settle_seconds(stored: StoredSpans, spans: int) -> float | None:
    """Return in how many seconds the blocks of a run are to be merged; None: they need not be."""
    if len(stored.messages) < 2:
        return None
    return 0.0 if stored.spans > 2 * spans else SETTLE_SECONDS


def _has_open_records(rows: ProjectedRun) -> bool:
    return any(
        row[_STATUS[kind]] in _OPEN for kind, found in rows.rows.items() for row in found.values()
    )


@contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raise an exception in the code inside after some seconds; None: never.

    By a signal, which also interrupts a regular expression. Python delivers signals to the main
    thread only.
    """
    if seconds is None:
        yield
        return

    def end(*_: object) -> None:
        raise TookTooLong

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


_TOOK_TOO_LONG = "The projection took too long."
_ENDED_THE_PROCESS = "The projection ended its process, took too long or used too much memory."


def _reason(error: Exception) -> str:
    """Return why a projection failed, without any data of the spans."""
    if isinstance(error, TooManySpans):
        return f"The trace has {error}; at most {MOST_SPANS} are turned into records."
    if isinstance(error, UnreadableBlock):
        return str(error)
    if isinstance(error, DecodeError):
        return "A stored span cannot be parsed."
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = ""
    if place is not None:
        file = Path(place.tb_frame.f_code.co_filename).name
        where = f" ({file}, line {place.tb_lineno})"
    return f"The projection raised {type(error).__name__}{where}."
