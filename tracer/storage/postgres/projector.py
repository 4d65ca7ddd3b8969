"""The projector: turns the stored spans of due runs into records.

docs/explanation/projection.md describes the steps and the conditions of each commit. A projector
has one synchronous connection and works on one group of runs at a time. Any number of them, in any
number of processes, share the work.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from google.protobuf.message import DecodeError

from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.otel.otlp.blocks import UnreadableBlock, unpack_block, weight
from tracer.otel.projection import PROJECTION_VERSION
from tracer.records import DEFAULT_TERMS, LeaseTerms
from tracer.records.prices import NO_OWN_PRICES, OwnPrices
from tracer.storage.postgres import projection_rows
from tracer.storage.postgres.citus import runs_per_transaction
from tracer.storage.postgres.pool import CONFLICTS, UNSTORABLE
from tracer.storage.postgres.projection_rows import (
    Attempt,
    Computed,
    MissingSpans,
    ProjectionWriter,
    ProjectorSession,
    StoredSpans,
    computed,
)
from tracer.storage.postgres.projects import READ_PRICES, price_of
from tracer.storage.postgres.spans import ADD_PENDING, LOCK_RUNS, MOST_ATTEMPTS
from tracer.storage.postgres.watch import notify_written

Connection = psycopg.Connection[tuple[Any, ...]]


GROUP_BYTES = 1_200_000
"""Runs share a transaction up to this uncompressed size: about 1,000 spans."""

GROUP_RUNS = 200

DUE_AT_ONCE = 500
"""How many due runs are listed at a time."""

FOUND_AT_ONCE = 10_000
"""How many due runs `Projector.find_due` finds at a time."""

CLAIMED_PAUSE = 1.0
"""How many seconds to wait for a run that another process has claimed."""

HEAVY_BYTES = 6_000_000
"""A run with more uncompressed bytes of spans is heavy, too. See `projection_rows.TAKES_HEAVY`."""

PER_MEGABYTE = 0.1
"""The seconds of processor time that a projection may take for each megabyte of a run's weight
(`tracer.otel.otlp.blocks.weight`). The largest run has 2,400 MB."""

log = get_logger(__name__)


class TookTooLong(BaseException):
    """The time limit of a projection expired. No `except Exception` in a dialect catches this."""


@dataclass(frozen=True)
class TimeLimits:
    """How many seconds of processor time the projection of one run may take.

    The limits only work in the main thread of a process. They count processor time, because a busy
    machine must not make projections fail.
    """

    in_group: float = 0.5
    """The limit if the run shares a group with other runs, which wait for it. A group has up to 1.2
    MB of spans, which usually take some 70 ms."""
    alone: float = 55.0
    """The limit if the run is alone in its group, for a run without any weight. The server kills a
    projector a little later (`processes.Limits`)."""
    per_megabyte: float = PER_MEGABYTE
    """By how much the limit grows for each megabyte of the run's weight."""


@dataclass(frozen=True)
class Round:
    """The result of projecting the runs that were due at one time."""

    projected: int = 0
    """How many runs were projected."""
    spans: int = 0
    """How many spans the projected runs have."""
    failures: int = 0
    """How many projections failed."""
    seconds: float = 0.0
    """The time that the projections took."""
    unread: Counter[str] = field(default_factory=Counter)
    """How many spans with token counts no rule could read, by scope; each is counted once."""
    waiting: Mapping[UUID, float] = field(default_factory=dict)
    """The runs that are still pending, and after how many seconds to try again."""

    def __add__(self, other: Round) -> Round:
        return Round(
            self.projected + other.projected,
            self.spans + other.spans,
            self.failures + other.failures,
            self.seconds + other.seconds,
            self.unread + other.unread,
            {**self.waiting, **other.waiting},
        )


_ONE_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"

_Failures = dict[UUID, tuple[str, int]]
"""The runs whose projection failed, with the reason and the least number of attempts to count.

The number is `MOST_ATTEMPTS` if the failure is final.
"""


class Projector:
    """Projects runs over one connection, which must be in autocommit mode and not pooled."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        terms: LeaseTerms = DEFAULT_TERMS,
        on_begin: Callable[[Sequence[UUID], int], None] = lambda _runs, _weight: None,
        on_end: Callable[[], None] = lambda: None,
        limits: TimeLimits | None = None,
    ) -> None:
        """Create a projector.

        Args:
            connection: To the database, as the owner of the tables.
            clock: The clock of due times; None: the database's own clock.
            terms: How long a run counts as alive after its newest span.
            on_begin: Called with each group of runs before its projection, and with the weight
                of their spans, which is 0 before they are read.
            on_end: Called after each group.
            limits: How long one projection may take; None: unlimited. Needs the main thread.
        """
        self._session = ProjectorSession(connection)
        self._writer = ProjectionWriter(self._session, terms)
        self._clock = clock
        self._on_begin = on_begin
        self._on_end = on_end
        self._limits = limits

    # --- Due runs --------------------------------------------------------------------------------

    def project_due(
        self, now: datetime | None = None, runs: Collection[UUID] | None = None
    ) -> Round:
        """Project the runs that are due and not claimed.

        Args:
            now: The time; None: the clock's.
            runs: Only these runs; None: those of `find_due`.

        Raises:
            psycopg.OperationalError: The database does not answer. Accepted spans stay stored.
        """
        now = now or self._now()
        runs = self.find_due(now) if runs is None else runs
        if not runs:
            return Round()
        ((takes_heavy,),) = self._session.ask(projection_rows.TAKES_HEAVY)
        pending = self._session.ask(
            projection_rows.DUE, now, [*runs], PROJECTION_VERSION, takes_heavy, DUE_AT_ONCE
        )
        waiting = {run_id: due_in for _, run_id, *_, due_in in pending if due_in > 0}
        if len(pending) == DUE_AT_ONCE:
            waiting |= dict.fromkeys(set(runs).difference(row[1] for row in pending), 0.0)
        done = Round(waiting=waiting)
        due = [row for row in pending if row[1] not in waiting]
        for project_id, group in self._groups(due, takes_heavy=takes_heavy):
            done += self._project_group(project_id, group, now, is_due=True)
            self._on_end()
        return done

    def find_due(self, now: datetime | None = None) -> list[UUID]:
        """Return due runs, claimed ones too. On Citus this reads all shards."""
        found = self._session.ask(projection_rows.FIND_DUE, now or self._now(), FOUND_AT_ONCE)
        return [run_id for (run_id,) in found]

    def project_run(self, project_id: int, root_plan_id: UUID) -> bool:
        """Project a run now if it is pending, and return whether it was projected.

        The result is false if another projector has claimed the run, if the run has no pending
        spans, or if the projection fails.
        """
        done = self._project_group(project_id, [root_plan_id], self._now(), is_due=False)
        return bool(done.projected)

    def _groups(
        self, due: Sequence[tuple[Any, ...]], *, takes_heavy: bool
    ) -> Iterator[tuple[int, list[UUID]]]:
        """Yield due runs, rows of `DUE`, in groups of one project each; projects take turns.

        A run with a failed attempt is alone in its group: it may fail again, or end this process.
        Runs that did not fail themselves, but whose process ended, come first.
        """
        most = runs_per_transaction(GROUP_RUNS, is_spread=self._session.is_spread)
        groups: dict[int, tuple[list[UUID], int]] = {}
        alone: list[tuple[bool, int, int, UUID]] = []
        for project_id, run_id, attempts, has_failed, size, _ in due:
            if attempts > 0 or size > HEAVY_BYTES:
                alone.append((has_failed, attempts, project_id, run_id))
                continue
            runs, total = groups.pop(project_id, ([], 0))
            if runs and (total + size > GROUP_BYTES or len(runs) == most):
                yield project_id, runs
                runs, total = [], 0
            runs.append(run_id)
            groups[project_id] = runs, total + size
        for project_id, (runs, _) in sorted(groups.items()):
            yield project_id, runs
        if takes_heavy:  # last, because they may take long
            for _, _, project_id, run_id in sorted(alone):
                yield project_id, [run_id]

    # --- One group -------------------------------------------------------------------------------

    def _project_group(
        self, project_id: int, runs: list[UUID], now: datetime | None, *, is_due: bool
    ) -> Round:
        claimed = [
            run_id for (run_id,) in self._session.ask(projection_rows.CLAIM, project_id, runs)
        ]
        waiting = Round(waiting=dict.fromkeys(set(runs).difference(claimed), CLAIMED_PAUSE))
        if not claimed:
            return waiting
        try:
            return waiting + self.project_claimed(project_id, claimed, now, is_due=is_due)
        finally:
            if not self._session.connection.closed:
                self._session.ask(projection_rows.RELEASE, project_id, claimed)

    def project_claimed(
        self, project_id: int, runs: list[UUID], now: datetime | None, *, is_due: bool
    ) -> Round:
        """Project runs that the caller has claimed. Claims only prevent duplicate work."""
        begin = time.monotonic()
        attempts: list[Attempt] = []
        failures: _Failures = {}
        noted = self._session.ask(
            projection_rows.ATTEMPT, project_id, runs, self._moment(now), not is_due
        )
        turns = {run_id: turn for turn, run_id in enumerate(runs)}
        for run_id, arrived, number, *rest in sorted(noted, key=lambda row: turns[row[0]]):
            if number > MOST_ATTEMPTS:
                failures[run_id] = _ENDED_THE_PROCESS, MOST_ATTEMPTS
            else:
                attempts.append(Attempt(run_id, arrived, *rest))
        run_ids = [attempt.run_id for attempt in attempts]
        if run_ids:
            self._on_begin(run_ids, 0)
        stored, prices = self._read(project_id, run_ids)
        total = sum(weight(each.size, each.spans) for each in stored.values())
        if total > HEAVY_BYTES:
            self._on_begin(run_ids, total)
        projections: list[Computed] = []
        done = Round()
        for index, attempt in enumerate(attempts):
            if (spans := stored.pop(attempt.run_id, None)) is None:
                continue  # it was deleted, or a newer version of the program projected it
            try:
                with _time_limit(self._seconds_for(len(attempts), total)):
                    projection = self._computed(project_id, attempt, spans, prices)
            except TookTooLong:
                failures[attempt.run_id] = _TOOK_TOO_LONG, 0
                # More runs of the group may take as long, or end the process.
                done += self._finish(project_id, projections, failures, now)
                projections, failures = [], {}
                if rest := run_ids[index + 1 :]:
                    self._on_begin(rest, total)
            except Exception as error:  # a dialect may raise anything; other runs continue
                failures[attempt.run_id] = _reason(error), 0
            else:
                projections.append(projection)
        done += self._finish(project_id, projections, failures, now)
        self._session.announce()
        return done + Round(seconds=time.monotonic() - begin)

    def _computed(
        self, project_id: int, attempt: Attempt, stored: StoredSpans, prices: OwnPrices
    ) -> Computed:
        """Return the projection of a run, with the log records of sessions that it newly names.

        Raises:
            Exception: See `projection_rows.computed`.
        """
        projection = computed(attempt, stored, prices)
        new = {UUID(bytes=each) for each in projection.rows.sessions} - stored.of_sessions.keys()
        if not new:
            return projection
        with self._session.in_project(project_id, _ONE_SNAPSHOT):
            stored.of_sessions |= self._read_sessions(project_id, sorted(new))
        return computed(attempt, stored, prices) if any(stored.of_sessions.values()) else projection

    def _seconds_for(self, runs: int, total: int) -> float | None:
        limits = self._limits
        if limits is None:
            return None
        return limits.in_group if runs > 1 else limits.alone + limits.per_megabyte * total / 1e6

    def _read(self, project_id: int, runs: list[UUID]) -> tuple[dict[UUID, StoredSpans], OwnPrices]:
        """Return the stored spans of the runs that exist, and the project's prices.

        Runs that a newer version of the program has projected are omitted.
        """
        stored_runs: dict[UUID, StoredSpans] = {}
        if not runs:
            return stored_runs, NO_OWN_PRICES
        with self._session.in_project(project_id, _ONE_SNAPSHOT):
            prices = self._ask_prices(project_id)
            for run_id, projected, version in self._session.ask(
                projection_rows.READ_RUNS, project_id, runs
            ):
                if version <= PROJECTION_VERSION:
                    stored_runs[run_id] = StoredSpans(projected)
            self._read_spans(project_id, stored_runs)
            named: dict[UUID, list[UUID]] = {}
            for run_id, session in self._session.ask(
                projection_rows.READ_SESSIONS, project_id, list(stored_runs)
            ):
                named.setdefault(session, []).append(run_id)
            if named:
                for session, messages in self._read_sessions(project_id, list(named)).items():
                    for run_id in named[session]:
                        stored_runs[run_id].of_sessions[session] = messages
        return stored_runs, prices

    def _ask_prices(self, project_id: int) -> OwnPrices:
        return OwnPrices(map(price_of, self._session.ask(_PRICES, project_id)))

    def _read_sessions(self, project_id: int, sessions: list[UUID]) -> dict[UUID, list[bytes]]:
        """Return the stored messages of each session, which contain its log records."""
        messages: dict[UUID, list[bytes]] = {session: [] for session in sessions}
        for session, _, _, _, body in self._session.ask(
            projection_rows.READ_BLOCKS, project_id, sessions
        ):
            with suppress(UnreadableBlock):  # the session's run itself reports the damage
                messages[session].append(unpack_block(body))
        return messages

    def _read_spans(self, project_id: int, runs: dict[UUID, StoredSpans]) -> None:
        """Read the stored messages of runs, and add them to `runs`."""
        ids = list(runs)
        for run_id, recorded_at, spans, size, body in self._session.ask(
            projection_rows.READ_BLOCKS, project_id, ids
        ):
            of_run = runs[run_id]
            try:
                of_run.messages.append(unpack_block(body))
            except UnreadableBlock as error:  # it must not stop the other runs of the group
                of_run.error = error
            of_run.arrivals.append(recorded_at)
            of_run.spans += spans
            of_run.size += size

    # --- Write -----------------------------------------------------------------------------------

    def _finish(
        self, project_id: int, group: list[Computed], failures: _Failures, now: datetime | None
    ) -> Round:
        """Write the projections of `group`, and record `failures`."""
        sessions = [each.attempt.run_id for each in group if each.rows.is_of_session]
        if sessions:
            self._wake_runs(project_id, sessions)
        written = self._write_each(project_id, group, now, failures)
        if failures:
            self._note_failures(project_id, failures, now)
        return Round(
            len(written),
            sum(each.rows.spans for each in written),
            len(failures),
            unread=sum((each.unread for each in written), Counter[str]()),
        )

    def _wake_runs(self, project_id: int, sessions: list[UUID]) -> None:
        """Make the runs that name these sessions pending.

        This is committed before the sessions' own runs are finished. If the process ends in
        between, the sessions' runs are projected again.
        """
        with self._session.in_project(project_id, _ONE_SNAPSHOT):
            named = self._session.ask(projection_rows.FIND_RUNS_OF_SESSIONS, project_id, sessions)
        runs = sorted(run_id for (run_id,) in named)
        most = runs_per_transaction(GROUP_RUNS, is_spread=self._session.is_spread)
        for begin in range(0, len(runs), most):
            with self._session.in_project(project_id):
                some = runs[begin : begin + most]
                pending = [
                    (run_id, projected, 0, 0, not_before)
                    for run_id, source, projected, not_before, *_ in self._session.ask(
                        LOCK_RUNS, project_id, some
                    )
                    if source == "spans"
                ]
                if pending:
                    columns = map(list, zip(*pending, strict=True))
                    self._session.ask(ADD_PENDING, project_id, self._now(), *columns)
                    self._session.left_pending.update(run_id for run_id, *_ in pending)

    def _write_each(
        self,
        project_id: int,
        group: list[Computed],
        now: datetime | None,
        failures: _Failures,
    ) -> list[Computed]:
        """Write projections together, or one by one if Postgres rejects a row of the group.

        Returns:
            The written projections. Those that Postgres rejects are added to `failures`.
        """
        try:
            return self._write(project_id, group, now)
        except UNSTORABLE as error:
            if len(group) == 1:
                failures[group[0].attempt.run_id] = _reason(error), 0
                return []
        except CONFLICTS:
            if len(group) == 1:
                self._session.left_pending.add(group[0].attempt.run_id)
                return []
        return [
            each for one in group for each in self._write_each(project_id, [one], now, failures)
        ]

    def _write(
        self, project_id: int, group: list[Computed], now: datetime | None
    ) -> list[Computed]:
        """Write projections in one transaction, and return the written ones."""
        if not group:
            return []
        with self._session.in_project(project_id):
            known = self._writer.read_digests(
                project_id, [each.attempt.run_id for each in group if each.stored.projected]
            )
            written, changed = self._writer.write_locked(
                project_id, group, known, self._moment(now)
            )
            self._session.check_references()
        if changed:
            notify_written(self._session.connection, changed)
        return written

    def _note_failures(self, project_id: int, failures: _Failures, now: datetime | None) -> None:
        runs = list(failures)
        self._session.left_pending.update(runs)
        reasons, attempts = map(list, zip(*failures.values(), strict=True))
        with self._session.in_project(project_id):
            self._session.ask(projection_rows.LOCK_PROJECTED_RUNS, project_id, runs)
            changed = self._session.ask(
                projection_rows.NOTE_FAILURES,
                project_id,
                self._moment(now),
                runs,
                reasons,
                attempts,
            )
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
            notify_written(self._session.connection, given_up)

    def _moment(self, now: datetime | None = None) -> datetime:
        """Return `now` if it is given, otherwise the time of the clock or of the database."""
        [(moment,)] = self._session.ask(projection_rows.MOMENT, now or self._now())
        assert isinstance(moment, datetime)
        return moment

    def _now(self) -> datetime | None:
        return self._clock and self._clock()


_PRICES = READ_PRICES.format("$1")


@contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raise an exception in the block after some seconds of processor time; None: never.

    The exception comes from a signal, because a signal also interrupts a regular expression. Python
    delivers signals to the main thread only.
    """
    if seconds is None:
        yield
        return

    def end(*_: object) -> None:
        raise TookTooLong

    previous = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


_TOOK_TOO_LONG = "The projection took too long."
_ENDED_THE_PROCESS = "The projection ended its process, took too long or used too much memory."


def _reason(error: Exception) -> str:
    """Return why a projection failed, without any data of the spans."""
    if isinstance(error, (MissingSpans, UnreadableBlock)):
        return str(error)
    if isinstance(error, DecodeError):
        return "A stored span cannot be parsed."
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = ""
    if frame is not None:
        file = Path(frame.tb_frame.f_code.co_filename).name
        where = f" ({file}, line {frame.tb_lineno})"
    return f"The projection raised {type(error).__name__}{where}."
