"""Health: is the server alive, and can it serve?"""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from api.parts import Reader
from api.problems import documented
from api.schemas import Health

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Answer while the process lives."""
    return Health(status="ok")


@router.get("/readyz", responses=documented(HTTPStatus.SERVICE_UNAVAILABLE))
async def readyz(reader: Reader) -> Health:
    """Answer while the database is reachable and its schema is current."""
    await reader.check()
    return Health(status="ok")
