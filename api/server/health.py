"""Routes that report whether the server is alive, and whether it can answer requests."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from api.dependencies import AllParts
from api.http.problems import documented
from api.schemas import Health, Readiness

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Answer 200 while the server's process is alive."""
    return Health(status="ok")


@router.get("/readyz", responses=documented(HTTPStatus.SERVICE_UNAVAILABLE))
async def readyz(parts: AllParts) -> Readiness:
    """Answer 200 if the database is reachable and its schema is current.

    A server is ready even without a projector, the process that converts spans to records. It
    accepts spans, and they are converted later. A server is also ready while its application is
    not: it records and reads, and rejects only requests to start runs.
    """
    await parts.reader.check()
    projectors = 0 if parts.backlog is None else await parts.backlog.count_projectors()
    is_walled = parts.stores is not None and await parts.stores.is_walled()
    return Readiness(
        status="ok",
        row_level_security="on" if is_walled else "off",
        projectors=projectors,
        application="none" if parts.application is None else parts.application.state,
        refused_tools=[] if parts.application is None else parts.application.refused_tools,
    )
