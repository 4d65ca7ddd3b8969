"""Routes that receive recorders' heartbeats, and list the leases of a run's recorders.

A lease is the time for which a heartbeat counts.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path

from api.dependencies import Reader, Writer
from api.http.parameters import RootPlanId
from api.http.problems import documented
from api.leases.schemas import LeaseSchema, LeasesSchema

router = APIRouter(prefix="/api", tags=["leases"])


@router.post("/recorders/{recorderId}/lease")
async def renew_lease(
    recorder_id: Annotated[UUID, Path(alias="recorderId", description="The recorder's id.")],
    writer: Writer,
) -> LeaseSchema:
    """Send a heartbeat for a recorder. Repeat it every `renewAfterSeconds` until the recorder ends.

    If the lease expires without a heartbeat, the recorder's open records are shown as `abandoned`.
    The next heartbeat reverts this.
    """
    return LeaseSchema.of(await writer.renew(recorder_id))


@router.get("/runs/{rootPlanId}/leases", responses=documented(HTTPStatus.NOT_FOUND))
async def list_leases(root_plan_id: RootPlanId, reader: Reader) -> LeasesSchema:
    """List the leases of the recorders that may have open records in a run.

    If a record is `abandoned`, its `abandonedAt` is the `expiresAt` of its recorder's lease.
    """
    leases = await reader.read_leases(root_plan_id)
    return LeasesSchema(items=[LeaseSchema.of(lease) for lease in leases])
