"""The parameters that routes have in common."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Path, Query
from pydantic import AfterValidator

from tracer.events import Moment
from tracer.text import storable

RootPlanId = Annotated[UUID, Path(alias="rootPlanId", description="The run's root plan.")]
PlanId = Annotated[UUID, Path(alias="planId")]
ThinkActId = Annotated[UUID, Path(alias="thinkActId")]
ToolCallId = Annotated[UUID, Path(alias="toolCallId")]

StoredText = Annotated[str, AfterValidator(storable)]
"""Text to look for, in stored form."""

PageSize = Annotated[int, Query(ge=1, le=500, description="How many items at most.")]
CursorText = Annotated[
    str | None, Query(description="The `nextCursor` of the page before this one.")
]
Since = Annotated[
    Moment | None,
    Query(
        alias="from", description="Started (or else recorded) at this moment or later, RFC 3339."
    ),
]
Until = Annotated[
    Moment | None,
    Query(alias="to", description="Started (or else recorded) before this moment, RFC 3339."),
]
