"""Leases in memory. `postgres/write/leases.py` implements the same in SQL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tracer.records.events import Event
from tracer.records.leases import MAX_DELAY, Lease, LeaseTerms
from tracer.records.record_classes import Kind
from tracer.storage.memory.runs import StoredRun, is_unfinished


@dataclass
class _StoredLease:
    lease: Lease
    lag: timedelta | None


class MemoryLeases:
    """The leases of recorders and runs."""

    def __init__(self, terms: LeaseTerms) -> None:
        self._terms = terms
        self._kept: dict[UUID, _StoredLease] = {}

    def renew(
        self,
        recorder_id: UUID,
        now: datetime,
        at: datetime | None = None,
        length: timedelta | None = None,
    ) -> Lease:
        """Renew a lease, or create it.

        Args:
            recorder_id: The recorder.
            now: The current time.
            at: The time of the event that renews the lease, by the recorder's clock; None: a
                heartbeat without an event.
            length: The length of the lease; None: the length of recorders' leases.
        """
        seen_at = now
        lag = None if at is None else now - at
        before = self._kept.get(recorder_id)
        if before is not None:
            least = min((each for each in (before.lag, lag) if each is not None), default=None)
            if lag is not None and least is not None:
                seen_at -= min(lag - least, MAX_DELAY)
            lag = least
            seen_at = max(seen_at, before.lease.seen_at)
        lease = Lease(recorder_id, seen_at, length or self._terms.lease)
        self._kept[recorder_id] = _StoredLease(lease, lag)
        return lease

    def renew_run(self, run_id: UUID, now: datetime) -> None:
        """Renew the lease of a run, which covers its records that name no recorder."""
        self.renew(run_id, now, length=self._terms.span_idle)

    def note(self, events: Iterable[Event], now: datetime) -> None:
        """Renew the lease of each event's recorder.

        If an event names no recorder, renew the lease of its run.
        """
        for event in events:
            if event.recorder_id is None:
                self.renew_run(event.root_plan_id, now)
            else:
                self.renew(event.recorder_id, now, event.at)

    def of_run(self, run: StoredRun) -> list[Lease]:
        """Return the leases of the recorders that have unfinished records in a run."""
        leases = [self._kept[each].lease for each in _unfinished(run) if each in self._kept]
        return sorted(leases, key=lambda lease: lease.recorder_id)

    def seen_at(self, run: StoredRun) -> datetime | None:
        """Return the last heartbeat of a run's recorders."""
        recorders = {run.whose(fields) for part in run.parts.values() for fields in part.values()}
        seen = [self._kept[each].lease.seen_at for each in recorders & self._kept.keys()]
        return max(seen, default=None)

    def expire(self, runs: Iterable[StoredRun], since: datetime, now: datetime) -> None:
        """Mark the recorders of unfinished records as dead or alive, according to their leases.

        Args:
            runs: The runs.
            since: The time since which heartbeats could arrive without interruption. No lease
                expires before its full length has passed since this time.
            now: The current time.
        """
        for run in runs:
            unfinished = _unfinished(run)
            has_changed = False
            for recorder_id in {*unfinished, *run.abandoned} & self._kept.keys():
                lease = self._kept[recorder_id].lease
                is_dead = max(lease.seen_at, since) + lease.length <= now
                if not is_dead and lease.expires_at <= now:
                    continue  # the reaper was not running, so heartbeats may be missing
                before = run.abandoned.pop(recorder_id, None)
                after = lease.expires_at if is_dead and recorder_id in unfinished else None
                if after is not None:
                    run.abandoned[recorder_id] = after
                if after != before and recorder_id in unfinished:
                    _raise(run, unfinished[recorder_id])
                    has_changed = True
            run.fields["revision"] += has_changed


def mark_dead(run: StoredRun, recorder_id: UUID | None, abandoned_at: datetime) -> None:
    """Mark a recorder of a run as dead.

    If the recorder is already marked, the earlier time is kept.

    Args:
        run: The run.
        recorder_id: The recorder that the run's records name; None if they name none.
        abandoned_at: When the recorder's lease expired.
    """
    whose = run.whose({"recorder_id": recorder_id})
    before = run.abandoned.get(whose)
    if before is None or abandoned_at < before:
        run.abandoned[whose] = abandoned_at
        _raise(run, _unfinished(run).get(whose, ()))
        run.fields["revision"] += 1


def _raise(run: StoredRun, places: Iterable[tuple[Kind, UUID]]) -> None:
    """Set the revision of some records of a run to the run's next revision."""
    for kind, record_id in places:
        fields = run.parts[kind][record_id]
        run.parts[kind][record_id] = {**fields, "revision": run.fields["revision"] + 1}


def _unfinished(run: StoredRun) -> dict[UUID, list[tuple[Kind, UUID]]]:
    """Return the unfinished records of a run, grouped by recorder."""
    unfinished: dict[UUID, list[tuple[Kind, UUID]]] = {}
    for kind, part in run.parts.items():
        for record_id, fields in part.items():
            if is_unfinished(fields):
                unfinished.setdefault(run.whose(fields), []).append((kind, record_id))
    return unfinished
