"""Schemas of recorders' leases."""

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
    """A recorder's lease: the time until which the recorder counts as alive.

    All times are by the server's clock.
    """

    model_config = read_config(**_EXAMPLE)

    recorder_id: UUID
    """The recorder's id. Spans have no recorder, so their lease has the run's `rootPlanId`."""
    seen_at: datetime
    """When the last heartbeat arrived: an event, a span or a renewal."""
    lease_seconds: float
    """How long a heartbeat counts, in seconds."""
    expires_at: datetime
    """When the lease expires. Records that are open then get this time as `abandonedAt`."""
    renew_after_seconds: float
    """The time after which to renew the lease, in seconds."""

    @classmethod
    def of(cls, lease: Lease) -> Self:
        """Return the schema of a lease."""
        return cls(
            recorder_id=lease.recorder_id,
            seen_at=lease.seen_at,
            lease_seconds=lease.length.total_seconds(),
            expires_at=lease.expires_at,
            renew_after_seconds=lease.renew_after.total_seconds(),
        )


class LeasesSchema(BaseModel):
    """The leases of a run's recorders."""

    model_config = read_config(items=[_EXAMPLE])

    items: list[LeaseSchema]
    """The leases, sorted by `recorderId`."""
