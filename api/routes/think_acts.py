"""Think-acts: one round, whole."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from fastapi import APIRouter

from api.backend import Reader
from api.problems import documented
from api.schemas import ThinkActSchema

router = APIRouter(prefix="/api/think-acts", tags=["think-acts"])


@router.get("/{thinkActId}", responses=documented(HTTPStatus.NOT_FOUND))
async def read_think_act(thinkActId: UUID, reader: Reader) -> ThinkActSchema:
    """Read one round whole, the model's messages included."""
    return ThinkActSchema.model_validate(await reader.read_think_act(thinkActId))
