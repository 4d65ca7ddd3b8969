"""The route by which a process that runs agents learns which of its runs to cancel.

A process with a database connection reads the requests from the database.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.dependencies import CancelRequestsDep
from api.schemas import CancelRequests

router = APIRouter(prefix="/api/cancel-requests", tags=["runs"])


@router.get("")
async def find_cancel_requests(
    root_plan_ids: Annotated[
        list[UUID],
        Query(alias="rootPlanId", max_length=100, description="The runs to check."),
    ],
    reader: CancelRequestsDep,
) -> CancelRequests:
    """Find which of the given runs have a request to be cancelled or deleted.

    Runs that the server does not know are omitted.
    """
    run_ids = await reader.find_cancel_requests(root_plan_ids)
    return CancelRequests(root_plan_ids=sorted(run_ids))
