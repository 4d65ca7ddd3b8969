"""Think-acts: one round, whole."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from api.conditional import NOT_MODIFIED, KnownAnswers
from api.parts import Reader
from api.problems import documented
from api.routes.parameters import ThinkActId
from api.schemas import ThinkActSchema
from tracer.records import Kind

router = APIRouter(prefix="/api/think-acts", tags=["think-acts"])


@router.get("/{thinkActId}", responses={**NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)})
async def read_think_act(
    think_act_id: ThinkActId, reader: Reader, known: KnownAnswers
) -> ThinkActSchema:
    """Read one round whole, the model's messages included."""
    known.check(await reader.read_revision(Kind.THINK_ACT, think_act_id))
    return ThinkActSchema.model_validate(await reader.read_think_act(think_act_id))
