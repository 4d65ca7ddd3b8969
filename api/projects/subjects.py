"""Subjects: whose runs they are, and the right to have them erased."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import Administering, Writer
from api.http.parameters import StoredText
from api.projects.schemas import ErasureSchema

router = APIRouter(prefix="/api/subjects", tags=["runs"])

# No part of the path: on the way somebody makes `..`, `//` and `%2F` something else.
Subject = Annotated[StoredText, Query(min_length=1, description="Whose runs, as `subject` says.")]


@router.delete("")
async def delete_subject(subject: Subject, writer: Writer, caller: Administering) -> ErasureSchema:
    """Delete every run of a subject with all below it, and what their conversations keep.

    What comes late of them is refused from then on. The answer says what was deleted, and what is
    left, which is counted in every table.
    """
    return ErasureSchema.model_validate(await writer.delete_subject(subject))
