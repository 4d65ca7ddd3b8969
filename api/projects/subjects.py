"""Subjects: the person or entity that runs belong to, and the erasure of their data."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import Administering, Writer
from api.http.parameters import StoredText
from api.projects.schemas import ErasureSchema

router = APIRouter(prefix="/api/subjects", tags=["runs"])

# Not in the path, because proxies rewrite `..`, `//` and `%2F`.
Subject = Annotated[StoredText, Query(min_length=1, description="The `subject` of the runs.")]


@router.delete("")
async def delete_subject(subject: Subject, writer: Writer, caller: Administering) -> ErasureSchema:
    """Delete all runs of a subject with all their data, and the state of their conversations.

    Events and spans of these runs that arrive later are rejected. The response has the numbers of
    deleted and of remaining rows; the latter are counted in every table.
    """
    return ErasureSchema.model_validate(await writer.delete_subject(subject))
