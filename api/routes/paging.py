"""The query parameters that lists have in common."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

PageSize = Annotated[int, Query(ge=1, le=500, description="How many items at most.")]
CursorText = Annotated[
    str | None, Query(description="The `nextCursor` of the page before this one.")
]
Since = Annotated[
    AwareDatetime | None,
    Query(alias="from", description="Started (or else recorded) at this moment or later, RFC 3339."),
]
Until = Annotated[
    AwareDatetime | None,
    Query(alias="to", description="Started (or else recorded) before this moment, RFC 3339."),
]
