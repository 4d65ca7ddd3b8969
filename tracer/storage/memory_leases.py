"""Leases in memory: the plain reading of what `postgres_leases` does in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tracer.leases import MOST_LATE, Lease, LeaseTerms
from tracer.records import Kind
from tracer.status import Status
from tracer.storage.memory_runs import KeptRun
from tracer.storage.signs_of_life import Signs
from tracer.versions import Fields


@dataclass
class _KeptLease:
    lease: Lease
    lag: timedelta | None


class MemoryLeases:
    """Who lives, and what of the dead is open."""

    def __init__(self, terms: LeaseTerms) -> None:
        self._terms = terms
        self._kept: dict[UUID, _KeptLease] = {}

    def renew(
        self,
        recorder_id: UUID,
        now: datetime,
        at: datetime | None = None,
        length: timedelta | None = None,
    ) -> Lease:
        """Renew a lease, or make it.

        Args:
            recorder_id: Whose.
            now: What time it is.
            at: When what tells of its life happened, by its own clock; None: now.
            length: How long it lasts; None: as long as a recorder's.
        """
        seen_at = now
        lag = None if at is None else now - at
        before = self._kept.get(recorder_id)
        if before is not None:
            least = min((each for each in (before.lag, lag) if each is not None), default=None)
            if lag is not None and least is not None:
                seen_at -= min(lag - least, MOST_LATE)
            lag = least
            seen_at = max(seen_at, before.lease.seen_at)
        lease = Lease(recorder_id, seen_at, length or self._terms.lease)
        self._kept[recorder_id] = _KeptLease(lease, lag)
        return lease

    def note(self, signs: Signs, now: datetime) -> None:
        """Renew the leases of those who wrote."""
        latest: dict[UUID, datetime | None] = {}
        for (recorder_id, run_id), at in signs.items():
            if recorder_id == run_id:
                self.renew(run_id, now, length=self._terms.silence)
            else:
                known = latest.get(recorder_id)
                latest[recorder_id] = at if known is None or at is None else max(known, at)
        for recorder_id, at in latest.items():
            self.renew(recorder_id, now, at)

    def of_run(self, run: KeptRun) -> list[Lease]:
        """Return the leases of those who left something open in a run."""
        whose = {_whose(run, fields) for _, _, fields in _open_records(run)}
        found = [self._kept[each].lease for each in whose if each in self._kept]
        return sorted(found, key=lambda lease: lease.recorder_id)

    def look_after(self, runs: Iterable[KeptRun], since: datetime, now: datetime) -> None:
        """Mark what the dead left open in runs, and clear what is of the living."""
        for run in runs:
            self._look_after(run, since, now)

    def _look_after(self, run: KeptRun, since: datetime, now: datetime) -> None:
        changed = False
        for kind, record_id, fields in list(_open_records(run)):
            kept = self._kept.get(_whose(run, fields))
            if kept is None:
                continue
            lease = kept.lease
            is_dead = max(lease.seen_at, since) + lease.length <= now
            abandoned_at = lease.expires_at if is_dead else None
            is_excused = not is_dead and lease.expires_at <= now
            if not is_excused and fields.get("abandoned_at") != abandoned_at:
                changed = True
                run.parts[kind][record_id] = {
                    **fields,
                    "abandoned_at": abandoned_at,
                    "revision": run.fields["revision"] + 1,
                }
        run.fields["revision"] += changed


def is_taken_up(kept: Fields, version: Fields) -> bool:
    """Return whether another recorder than before writes a record now."""
    before, now = kept.get("recorder_id"), version.get("recorder_id")
    return now is not None and (before is None or now > before)


def _open_records(run: KeptRun) -> Iterator[tuple[Kind, UUID, Fields]]:
    for kind, part in run.parts.items():
        for record_id, fields in part.items():
            if fields["status"] in (Status.PENDING, Status.RUNNING):
                yield kind, record_id, fields


def _whose(run: KeptRun, fields: Fields) -> UUID:
    # Records of spans may name the recorder that wrote them elsewhere.
    recorder_id: UUID | None = None if run.is_of_spans else fields.get("recorder_id")
    return recorder_id or run.root_plan_id
