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
from tracer.records.events import Moment
from tracer.records.tool_stats import TimeRange
from tracer.text import storable

RootPlanId = Annotated[UUID, Path(alias="rootPlanId", description="The run's root plan.")]
PlanId = Annotated[UUID, Path(alias="planId")]
ThinkActId = Annotated[UUID, Path(alias="thinkActId")]
ToolCallId = Annotated[UUID, Path(alias="toolCallId")]


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query parameter that the route does not have: a misspelt one must not vanish.

    Raises:
        BadRequest: There is one.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = _query_parameters(route.dependant)
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        offered = f"Use one of {', '.join(sorted(known))}." if known else "It takes none."
        raise BadRequest(f"There is no query parameter {storable(unknown[0])!r} here. {offered}")


def _query_parameters(dependant: Dependant) -> set[str]:
    """Return those of a route, with those of what it depends on."""
    own = {field.alias for field in dependant.query_params}
    return own.union(*map(_query_parameters, dependant.dependencies))


async def name_lineage(request: Request) -> None:
    """Put the ids in a request's path on every line that is logged for it."""
    for name, value in request.path_params.items():
        if name in _IDS:
            with suppress(ValueError):  # what else is there is refused, and not told
                bind_request_ids(**{_IDS[name]: UUID(value)})


_IDS = {
    "rootPlanId": "root_plan_id",
    "planId": "plan_id",
    "thinkActId": "think_act_id",
    "toolCallId": "tool_call_id",
    "recorderId": "recorder_id",
}


StoredText = Annotated[str, AfterValidator(storable)]
"""Text to look for, in stored form."""

PageSize = Annotated[int, Query(ge=1, le=500, description="How many items at most.")]
CursorText = Annotated[
    str | None, Query(description="The `nextCursor` of the page before this one.")
]
_Since = Annotated[
    Moment | None,
    Query(
        alias="from", description="Started (or else recorded) at this moment or later, RFC 3339."
    ),
]
_Until = Annotated[
    Moment | None,
    Query(alias="to", description="Started (or else recorded) before this moment, RFC 3339."),
]


async def _range(since: _Since = None, until: _Until = None) -> TimeRange:
    if since is not None and until is not None and since > until:
        raise BadRequest("'from' is later than 'to': nothing starts in such a range of time.")
    return TimeRange(since, until)


Within = Annotated[TimeRange, Depends(_range)]
"""The range of time that a reading is about."""
