"""Wishes to cancel: what a process that runs agents, and has no database, looks out for."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.dependencies import Wishes
from api.schemas import CancelRequests

router = APIRouter(prefix="/api/cancel-requests", tags=["runs"])


@router.get("")
async def find_cancel_requests(
    root_plan_ids: Annotated[
        list[UUID],
        Query(alias="rootPlanId", max_length=100, description="The runs asked about."),
    ],
    reader: Wishes,
) -> CancelRequests:
    """Find those of some runs that somebody wished to be cancelled, or deleted.

    A run that is not known yet is not among them.
    """
    found = await reader.find_cancel_requests(root_plan_ids)
    return CancelRequests(root_plan_ids=sorted(found))
