"""Leases: how long a recorder counts as alive after a heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

MAX_DELAY = timedelta(days=36_500)
"""The largest delay of an event that is considered. A larger one comes from a wrong clock, and
times computed with it would be out of range."""


@dataclass(frozen=True)
class LeaseTerms:
    """The lengths of leases."""

    lease: timedelta = timedelta(seconds=60)
    """The lease of a recorder."""
    span_idle: timedelta = timedelta(minutes=15)
    """The lease of a run without a recorder, such as most runs of OpenTelemetry spans."""


DEFAULT_TERMS = LeaseTerms()


@dataclass(frozen=True)
class Lease:
    """The lease of a recorder, by the store's clock."""

    recorder_id: UUID
    """The recorder; the run if it has no recorder."""
    seen_at: datetime
    """The time of the last heartbeat."""
    length: timedelta
    """How long the lease lasts after it."""

    @property
    def expires_at(self) -> datetime:
        """When the lease expires. Open records get this time as their `abandoned_at`."""
        return self.seen_at + self.length

    @property
    def renew_after(self) -> timedelta:
        """When to renew the lease.

        It is early enough that two renewals may fail before the expiry.
        """
        return self.length / 3
