"""The parameters that routes have in common."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator

from tracer.errors import BadRequest
from tracer.logs import bind_request_ids
from tracer.records.events import Timestamp
from tracer.records.tool_stats import TimeRange
from tracer.text import storable

RootPlanId = Annotated[UUID, Path(alias="rootPlanId", description="The run's root plan.")]
PlanId = Annotated[UUID, Path(alias="planId")]
ThinkActId = Annotated[UUID, Path(alias="thinkActId")]
ToolCallId = Annotated[UUID, Path(alias="toolCallId")]


async def refuse_unknown_parameters(request: Request) -> None:
    """Reject unknown query parameters, because a misspelt parameter must not be ignored.

    Raises:
        BadRequest: The request has a query parameter that its route does not have.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = _query_parameters(route.dependant)
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        offered = f"Use one of {', '.join(sorted(known))}." if known else "It takes no parameters."
        raise BadRequest(f"This path has no query parameter {storable(unknown[0])!r}. {offered}")


def _query_parameters(dependant: Dependant) -> set[str]:
    """Return the names of a route's query parameters, including those of its dependencies."""
    own = {field.alias for field in dependant.query_params}
    return own.union(*map(_query_parameters, dependant.dependencies))


async def name_lineage(request: Request) -> None:
    """Add the record ids in a request's path to every log line of the request."""
    for name, value in request.path_params.items():
        if name in _IDS:
            with suppress(ValueError):  # FastAPI rejects other values; they must not be logged
                bind_request_ids(**{_IDS[name]: UUID(value)})


_IDS = {
    "rootPlanId": "root_plan_id",
    "planId": "plan_id",
    "thinkActId": "think_act_id",
    "toolCallId": "tool_call_id",
    "recorderId": "recorder_id",
}


StoredText = Annotated[str, AfterValidator(storable)]
"""A text to search for. Characters that cannot be stored are escaped, as in stored texts."""

PageSize = Annotated[int, Query(ge=1, le=500, description="The largest number of items in a page.")]
CursorText = Annotated[str | None, Query(description="The `nextCursor` of the previous page.")]
_Since = Annotated[
    Timestamp | None,
    Query(
        alias="from",
        description="Only items that started at this time or later (RFC 3339). If an item has no "
        "start, the time of its recording counts.",
    ),
]
_Until = Annotated[
    Timestamp | None,
    Query(
        alias="to",
        description="Only items that started before this time (RFC 3339). If an item has no start, "
        "the time of its recording counts.",
    ),
]


async def _range(since: _Since = None, until: _Until = None) -> TimeRange:
    if since is not None and until is not None and since > until:
        raise BadRequest("'from' is later than 'to', so the range is empty. Swap the two times.")
    return TimeRange(since, until)


Period = Annotated[TimeRange, Depends(_range)]
"""The time range of a list or of statistics."""
