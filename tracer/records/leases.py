"""Leases: how long a recorder counts as alive after a heartbeat.

A recorder is a process that writes events. After its lease expires, its unfinished records are
shown as `abandoned`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

MAX_DELAY = timedelta(days=36_500)
"""The maximum delay of an event. Larger delays are reduced to this one: they come from a wrong
clock, and times computed with them would be out of range."""


@dataclass(frozen=True)
class LeaseTerms:
    """The durations of leases."""

    lease: timedelta = timedelta(seconds=60)
    """How long a recorder counts as alive after a heartbeat."""
    span_idle: timedelta = timedelta(minutes=15)
    """How long a run without a recorder counts as alive after its last data. Most runs of
    OpenTelemetry spans have no recorder."""


DEFAULT_TERMS = LeaseTerms()


@dataclass(frozen=True)
class Lease:
    """The lease of one recorder. Times are those of the store's clock."""

    recorder_id: UUID
    """The id of the recorder, or of the run if the run has no recorder."""
    seen_at: datetime
    """The time of the last heartbeat."""
    length: timedelta
    """How long the lease lasts after `seen_at`."""

    @property
    def expires_at(self) -> datetime:
        """When the lease expires. It becomes the `abandoned_at` of the recorder's open records."""
        return self.seen_at + self.length

    @property
    def renew_after(self) -> timedelta:
        """The time after a heartbeat at which to renew the lease: a third of its length.

        Two renewals may then fail before the lease expires.
        """
        return self.length / 3
