"""The route that reads a think-act, also called a round."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from api.dependencies import Reader
from api.http.conditional import NOT_MODIFIED, Conditional
from api.http.parameters import ThinkActId
from api.http.problems import documented
from api.moved_records import naming_run
from api.schemas import ThinkActSchema
from tracer.records.record_classes import Kind

router = APIRouter(prefix="/api/think-acts", tags=["think-acts"])


@router.get("/{thinkActId}", responses={**NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)})
async def read_think_act(
    think_act_id: ThinkActId, reader: Reader, conditional: Conditional
) -> ThinkActSchema:
    """Read one round (a think-act) with all its fields, including the model's messages."""
    async with naming_run(reader, think_act_id):
        conditional.check(await reader.read_revision(Kind.THINK_ACT, think_act_id))
        return ThinkActSchema.model_validate(await reader.read_think_act(think_act_id))
