"""Leases: how long somebody who records counts as alive without being heard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

MOST_LATE = timedelta(days=36_500)
"""How much later than usual an event may come, at most: more is a clock that was wrong once, by so
much that the moments counted back from now would be none."""


@dataclass(frozen=True)
class LeaseTerms:
    """How long leases last."""

    lease: timedelta = timedelta(seconds=60)
    """A recorder's."""
    silence: timedelta = timedelta(minutes=15)
    """A run's, for what no recorder is named for: OpenTelemetry spans mostly."""


DEFAULT_TERMS = LeaseTerms()


@dataclass(frozen=True)
class Lease:
    """Until when a recorder counts as alive, by the store's clock."""

    recorder_id: UUID
    """The recorder; of what no recorder is named for, the run."""
    seen_at: datetime
    """When it gave its last sign of life."""
    length: timedelta
    """How long that counts."""

    @property
    def expires_at(self) -> datetime:
        """When it runs out: the `abandoned_at` of what it leaves open."""
        return self.seen_at + self.length

    @property
    def renew_after(self) -> timedelta:
        """When to renew it, so that two renewals may fail."""
        return self.length / 3
