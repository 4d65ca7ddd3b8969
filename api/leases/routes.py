"""Leases: recorders say that they live, and runs say whose lives they go by."""

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
    recorder_id: Annotated[UUID, Path(alias="recorderId", description="Who records.")],
    writer: Writer,
) -> LeaseSchema:
    """Say that a recorder lives. It comes again after `renewAfterSeconds`, until it has ended.

    What it leaves open when its lease runs out is `abandoned`, until it is heard again.
    """
    return LeaseSchema.of(await writer.renew(recorder_id))


@router.get("/runs/{rootPlanId}/leases", responses=documented(HTTPStatus.NOT_FOUND))
async def list_leases(root_plan_id: RootPlanId, reader: Reader) -> LeasesSchema:
    """List the leases of those who left something open in a run, or may have.

    They say why a record is `abandoned`: its `abandonedAt` is the `expiresAt` of its recorder's.
    """
    leases = await reader.read_leases(root_plan_id)
    return LeasesSchema(items=[LeaseSchema.of(lease) for lease in leases])
