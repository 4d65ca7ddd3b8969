"""Subjects: whose runs they are, and the right to have them erased."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from api.parts import Administering, Writer
from api.project_schemas import ErasureSchema
from api.routes.parameters import StoredText

router = APIRouter(prefix="/api/subjects", tags=["runs"])

# With slashes: a subject may be called anything.
Subject = Annotated[StoredText, Path(min_length=1, description="Whose runs, as `subject` says.")]


@router.delete("/{subject:path}")
async def delete_subject(subject: Subject, writer: Writer, caller: Administering) -> ErasureSchema:
    """Delete every run of a subject with all below it, and what their conversations keep.

    What comes late of them is refused from then on. The answer says what was deleted, and what is
    left, which is counted in every table.
    """
    return ErasureSchema.model_validate(await writer.delete_subject(subject))
