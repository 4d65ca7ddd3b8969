"""The preference `wait` (RFC 7240): the client waits for the projection of the spans it sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from fastapi import Request

from tracer.records import Kind
from tracer.store import SpanProjection

MAX_WAIT_SECONDS = 30

PREFER: dict[str, Any] = {
    "name": "prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`wait=5`: answer when the records of the spans are there, after that many "
    f"seconds at the latest (RFC 7240). At most {MAX_WAIT_SECONDS} seconds.",
    "example": "wait=5",
}
"""The header in the OpenAPI document."""

_WAIT = re.compile(r'\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?:;.*)?', re.IGNORECASE)


def preferred_wait(request: Request) -> int | None:
    """Return how many seconds the client prefers to wait, at most `MAX_WAIT_SECONDS`.

    None if it has no such preference. The first of several counts; a malformed one is ignored
    (RFC 7240, section 2).
    """
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        if (found := _WAIT.fullmatch(preference)) is not None:
            return min(int(found[1]), MAX_WAIT_SECONDS)
    return None


async def await_projection(
    projection: SpanProjection, root_plan_ids: Iterable[UUID], seconds: int
) -> bool:
    """Return whether all spans of the runs that were accepted so far are projected in this time."""
    time = asyncio.get_running_loop().time
    end = time() + seconds
    for root_plan_id in root_plan_ids:
        left = max(0.0, end - time())
        if await projection.catch_up(Kind.RUN, root_plan_id, seconds=left, any_size=True):
            return False
    return True
