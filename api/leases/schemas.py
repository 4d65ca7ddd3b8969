"""What is answered of leases."""

from __future__ import annotations

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import BaseModel

from api.schemas import read_config
from tracer.records.leases import Lease

_EXAMPLE = {
    "recorderId": "01a20033-9c01-7f00-8a9b-5c6d7e8f9012",
    "seenAt": "2026-11-21T22:21:52.462812Z",
    "leaseSeconds": 60.0,
    "expiresAt": "2026-11-21T22:22:52.462812Z",
    "renewAfterSeconds": 20.0,
}


class LeaseSchema(BaseModel):
    """Until when a recorder counts as alive, by the server's clock."""

    model_config = read_config(**_EXAMPLE)

    recorder_id: UUID
    """The recorder; of what no recorder is named for, such as spans, the run's `rootPlanId`."""
    seen_at: datetime
    """When it gave its last sign of life: an event, a span or a renewal."""
    lease_seconds: float
    """How long that counts."""
    expires_at: datetime
    """When the lease runs out, or ran out: the `abandonedAt` of what it left open."""
    renew_after_seconds: float
    """After how long to renew it."""

    @classmethod
    def of(cls, lease: Lease) -> Self:
        """Return how a lease is told."""
        return cls(
            recorder_id=lease.recorder_id,
            seen_at=lease.seen_at,
            lease_seconds=lease.length.total_seconds(),
            expires_at=lease.expires_at,
            renew_after_seconds=lease.renew_after.total_seconds(),
        )


class LeasesSchema(BaseModel):
    """The leases that a run goes by."""

    model_config = read_config(items=[_EXAMPLE])

    items: list[LeaseSchema]
    """By `recorderId`."""
