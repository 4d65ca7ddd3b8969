"""Writing projections: the rows of runs, under the locks of the runs, in the caller's transaction.

docs/explanation/projection.md describes the steps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from tracer.errors import TracerError
from tracer.otel.otlp.blocks import UnreadableBlock
from tracer.otel.otlp.span_fields import EPOCH
from tracer.otel.projection.project import (
    PROJECTED_FIELDS,
    PROJECTION_VERSION,
    RUN_FIELDS,
    ProjectedRun,
    Row,
    fields_of,
    fields_of_run,
    project_run,
)
from tracer.records.leases import LeaseTerms
from tracer.records.merge import Fields
from tracer.records.prices import NO_OWN_PRICES, OwnPrices, is_unpriced
from tracer.records.record_classes import RECORDS, Kind
from tracer.records.status import Status
from tracer.storage.postgres.spans import projection_sql as sql
from tracer.storage.postgres.spans.copy_rows import CopyRows, digest_of, no_rows, pack_row
from tracer.storage.postgres.spans.projector_session import ProjectorSession
from tracer.storage.postgres.write.event_rows import json_batches
from tracer.storage.postgres.write.lease_sql import NOTE_RUNS

MOST_SPANS = 200_000
"""A run with more spans than this is not projected."""

SETTLE_SECONDS = 600.0
"""The blocks of a run are merged when no span of it has arrived for that long."""

_OPEN = (Status.PENDING, Status.RUNNING)
_STATUS = {kind: PROJECTED_FIELDS[kind].index("status") for kind in RECORDS}
_COST = PROJECTED_FIELDS[Kind.THINK_ACT].index("cost_usd")
_USAGE = ("requested_model", "model", "input_tokens", "output_tokens")
_USAGE_PLACES = [PROJECTED_FIELDS[Kind.THINK_ACT].index(name) for name in _USAGE]
_ROUND_STATUS = PROJECTED_FIELDS[Kind.THINK_ACT].index("status")
_TOKENS = slice(_COST - 2, _COST)
"""The indexes of the input and output tokens, which precede the cost in a row."""
_RUN_COST = RUN_FIELDS.index("cost_usd")
"""The index of the cost in the fields of a run. The next field is `unpriced_calls`."""
_COMPARED = [name for name in RUN_FIELDS if name != "cancel_requested_at"]
_MICROSECOND = timedelta(microseconds=1)


class MissingSpans(TracerError):
    """A run has no stored spans. Its records are kept, because they cannot be projected again."""


class TooManySpans(TracerError):
    """A run has more spans than can be projected."""


@dataclass
class Attempt:
    """A claimed run with its pending spans."""

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
    """The value of `run.projected` when the spans were read."""
    messages: list[bytes] = field(default_factory=list)
    arrivals: list[datetime] = field(default_factory=list)
    """When each of the messages arrived, in ascending order."""
    spans: int = 0
    """The number of stored spans. Each stored version of a span counts."""
    size: int = 0
    of_sessions: dict[UUID, list[bytes]] = field(default_factory=dict)
    """The messages with log records of the run's sessions, by the id of the run that stores
    them."""
    error: UnreadableBlock | None = None
    """Why a block of the run cannot be read; None if all can."""


@dataclass
class Computed:
    """The projection of a run, ready to be written."""

    attempt: Attempt
    stored: StoredSpans
    rows: ProjectedRun
    packed: dict[Kind, dict[bytes, tuple[bytes, int]]]
    """Each row in the binary format of `COPY` with its digest, by record id."""
    seconds: float


def computed(attempt: Attempt, stored: StoredSpans, prices: OwnPrices = NO_OWN_PRICES) -> Computed:
    """Return the projection of a run.

    Raises:
        MissingSpans: The run has no stored spans.
        TooManySpans: The run has more spans than can be projected.
        UnreadableBlock: One of its blocks is damaged.
        Exception: A dialect failed.
    """
    begin = time.monotonic()
    if stored.error is not None:
        raise stored.error
    if not stored.messages:
        raise MissingSpans("The run has no stored spans, so it cannot be projected.")
    of_sessions = [each for messages in stored.of_sessions.values() for each in messages]
    rows = project_run(stored.messages, of_sessions, prices)
    if rows.spans > MOST_SPANS:
        raise TooManySpans(
            f"The trace has {rows.spans} spans. Traces with more than {MOST_SPANS} spans are not "
            "turned into records."
        )
    packed = {
        kind: {record_id: _packed(kind, row) for record_id, row in of_kind.items()}
        for kind, of_kind in rows.rows.items()
    }
    return Computed(attempt, stored, rows, packed, time.monotonic() - begin)


def _packed(kind: Kind, row: Row) -> tuple[bytes, int]:
    packed = pack_row(kind, row)
    return packed, digest_of(packed)


def _settle_seconds(stored: StoredSpans, spans: int) -> float | None:
    """Return after how many seconds to merge the blocks of a run; None: never."""
    if len(stored.messages) < 2:
        return None
    return 0.0 if stored.spans > 2 * spans else SETTLE_SECONDS


def _has_open_records(rows: ProjectedRun) -> bool:
    return any(
        row[_STATUS[kind]] in _OPEN
        for kind, of_kind in rows.rows.items()
        for row in of_kind.values()
    )


Digests = dict[UUID, dict[Kind, dict[bytes, int]]]
"""The digests of stored records, by run, kind and record id."""


class ProjectionWriter:
    """Writes projections over a projector's connection."""

    def __init__(self, session: ProjectorSession, terms: LeaseTerms) -> None:
        """Set the connection, and how long a run counts as alive after its newest span."""
        self._session = session
        self._terms = terms

    def read_digests(self, project_id: int, runs: list[UUID]) -> Digests:
        """Return the digests of all records of runs."""
        digests: Digests = {run_id: {kind: {} for kind in RECORDS} for run_id in runs}
        if not runs:
            return digests
        for kind in RECORDS:
            for run_id, record_id, digest in self._session.ask(
                sql.READ_DIGESTS[kind], project_id, runs
            ):
                digests[run_id][kind][record_id.bytes] = digest
        return digests

    def write_locked(
        self,
        project_id: int,
        group: list[Computed],
        known: Digests,
        now: datetime,
    ) -> tuple[list[Computed], list[UUID]]:
        """Lock runs, write their rows, and end their pending state, in the caller's transaction.

        Returns:
            The projections that were written, and the runs whose revisions grew.
        """
        by_run = {each.attempt.run_id: each for each in group}
        # Row-level security allows `COPY` to the owner alone. On Citus the owner's connections to
        # the workers do not see the rows of this transaction.
        writing = _Writing(None if self._session.is_spread else no_rows(project_id))
        written: list[Computed] = []
        for run_id, projected, revision, _, error, *shown in self._session.ask(
            sql.LOCK_PROJECTED_RUNS, project_id, list(by_run)
        ):
            each = by_run[run_id]
            if projected != each.stored.projected:
                continue  # another projector projected it
            self._keep_costs(project_id, each, known.get(run_id))
            run = fields_of_run(each.rows.run)
            is_changed = error is not None or any(
                run[name] != value
                for name, value in zip(RUN_FIELDS, shown, strict=True)
                if name in _COMPARED
            )
            writing.add(each, known.get(run_id, {}), revision, is_changed, run)
            written.append(each)
        if written:
            self._execute(project_id, writing, now)
            self._note_sessions(project_id, written)
            self._session.ask(
                sql.FINISH,
                project_id,
                [each.attempt.run_id for each in written],
                [each.attempt.arrived for each in written],
                [each.attempt.spans for each in written],
                [each.attempt.size for each in written],
            )
            self._note_signs(project_id, written)
        return written, writing.changed

    def _note_sessions(self, project_id: int, written: list[Computed]) -> None:
        """Store which sessions the runs name. Make runs that name a new session pending again.

        Log records of the session may have been projected at the same time. That projection did not
        see the new rows, so it did not make these runs pending.
        """
        named = [
            (each.attempt.run_id, UUID(bytes=session))
            for each in written
            for session in each.rows.sessions
        ]
        if named:
            columns = map(list, zip(*named, strict=True))
            new = self._session.ask(sql.ADD_SESSIONS, project_id, *columns)
            if new:
                runs = sorted({run_id for (run_id,) in new})
                self._session.ask(sql.PROJECT_AGAIN, project_id, runs)

    def _execute(self, project_id: int, writing: _Writing, now: datetime) -> None:
        runs = [run_id for run_id, _ in writing.runs]
        for batch in json_batches(Kind.RUN, writing.runs):
            self._session.ask(sql.UPDATE_RUNS, project_id, now, batch, runs)
        for kind in RECORDS:
            if gone := writing.gone[kind]:
                for statement in sql.removing(kind):
                    self._session.ask(statement, project_id, runs, gone)
        self._copy(project_id, [each for each in (writing.new or {}).values() if each])
        for kind in RECORDS:
            for batch in json_batches(kind, writing.changes[kind]):
                self._session.ask(sql.replacing(kind), project_id, batch, runs)

    def _copy(self, project_id: int, copies: list[CopyRows]) -> None:
        if copies:
            self._session.become(None)  # policies allow no `COPY`
            for each in copies:
                with self._session.connection.cursor().copy(each.statement) as copy:
                    for chunk in each.chunks():
                        copy.write(chunk)
            self._session.become(project_id)

    def _keep_costs(
        self, project_id: int, each: Computed, known: dict[Kind, dict[bytes, int]] | None
    ) -> None:
        """Keep the stored costs of think-acts whose token usage has not changed.

        Without this, a cost that was computed from a price list would change after an update of the
        list. Costs that the spans contain are not affected.
        """
        if known is None or each.attempt.with_prices:
            return
        digests, packed = known[Kind.THINK_ACT], each.packed[Kind.THINK_ACT]
        rows = each.rows.rows[Kind.THINK_ACT]
        changed = [
            record_id
            for record_id, row in rows.items()
            if (record_id in each.rows.priced or row[_COST] is None)
            and digests.get(record_id, packed[record_id][1]) != packed[record_id][1]
        ]
        if not changed:
            return
        total: Decimal = each.rows.run[_RUN_COST]
        unpriced_calls: int = each.rows.run[_RUN_COST + 1]
        ids = [UUID(bytes=record_id) for record_id in changed]
        for _, think_act_id, cost, *usage in self._session.ask(
            sql.READ_COSTS, project_id, [each.attempt.run_id], ids
        ):
            record_id, row = think_act_id.bytes, rows[think_act_id.bytes]
            if cost is not None and usage == [row[place] for place in _USAGE_PLACES]:
                total += cost - (row[_COST] or 0)
                unpriced_calls -= is_unpriced(row[_ROUND_STATUS], row[_TOKENS], row[_COST])
                row = rows[record_id] = (*row[:_COST], cost, *row[_COST + 1 :])
                packed[record_id] = _packed(Kind.THINK_ACT, row)
        run = each.rows.run
        each.rows.run = (*run[:_RUN_COST], total, unpriced_calls, *run[_RUN_COST + 2 :])

    def _note_signs(self, project_id: int, written: list[Computed]) -> None:
        signs = {
            each.attempt.run_id: each.attempt.seen_at
            for each in written
            if each.attempt.seen_at is not None and _has_open_records(each.rows)
        }
        if signs:
            runs, moments = [*signs], [*signs.values()]
            self._session.ask(NOTE_RUNS, project_id, runs, runs)
            self._session.ask(
                sql.RENEW_RUN_LEASES, project_id, runs, moments, self._terms.span_idle
            )


class _Writing:
    """The rows that a transaction writes."""

    def __init__(self, new: dict[Kind, CopyRows] | None) -> None:
        """Set the collector of new rows; None: new rows are written like changed ones."""
        self.new = new
        self.runs: dict[tuple[UUID, UUID], Fields] = {}
        self.changed: list[UUID] = []
        self.changes: dict[Kind, dict[tuple[UUID, UUID], Fields]] = {k: {} for k in RECORDS}
        self.gone: dict[Kind, list[UUID]] = {k: [] for k in RECORDS}

    def add(
        self,
        each: Computed,
        known: dict[Kind, dict[bytes, int]],
        revision: int,
        is_changed: bool,
        run: Fields,
    ) -> None:
        """Add a run.

        Args:
            each: The run's projection.
            known: The digests of the run's stored records; empty before its first projection.
            revision: The run's revision before this write.
            is_changed: Whether the run's own fields change.
            run: The run's own fields.
        """
        attempt, stored, rows = each.attempt, each.stored, each.rows
        run_id = attempt.run_id
        later, arrivals = rows.later, stored.arrivals
        moments = [(at - EPOCH) // _MICROSECOND for at in arrivals]
        for kind, packed_rows in each.packed.items():
            digests = known.get(kind, {})
            of_kind = rows.rows[kind]
            new = self.new[kind] if self.new is not None else None
            # The revision grows if there is any new row.
            beginning = new.beginning(run_id.bytes, revision + 1) if new is not None else b""
            for record_id, (packed, digest) in packed_rows.items():
                stored_digest = digests.get(record_id)
                if stored_digest == digest:
                    continue
                is_changed = True
                first, row = later.get(record_id, 0), of_kind[record_id]
                if stored_digest is None and new is not None:
                    new.add(beginning, record_id, moments[first], row, packed, digest)
                else:
                    self.changes[kind][run_id, UUID(bytes=record_id)] = {
                        **fields_of(kind, row),
                        "recorded_at": arrivals[first],
                        "digest": digest,
                    }
            if gone := digests.keys() - packed_rows.keys():
                is_changed = True
                self.gone[kind] += [UUID(bytes=record_id) for record_id in gone]
        if is_changed:
            revision += 1
            self.changed.append(run_id)
        self.runs[run_id, run_id] = {
            **run,
            "revision": revision,
            "projected": attempt.arrived,
            "projection_version": PROJECTION_VERSION,
            "seconds": each.seconds,
            "span_bytes": stored.size,
            "settle_seconds": _settle_seconds(stored, rows.spans),
        }
