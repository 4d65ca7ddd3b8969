"""Think-acts: one round, whole."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from api.parts import Reader
from api.problems import documented
from api.routes.parameters import ThinkActId
from api.schemas import ThinkActSchema

router = APIRouter(prefix="/api/think-acts", tags=["think-acts"])


@router.get("/{thinkActId}", responses=documented(HTTPStatus.NOT_FOUND))
async def read_think_act(think_act_id: ThinkActId, reader: Reader) -> ThinkActSchema:
    """Read one round whole, the model's messages included."""
    return ThinkActSchema.model_validate(await reader.read_think_act(think_act_id))
