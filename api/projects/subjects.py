"""The route that deletes all data of a subject: the person or entity that runs belong to."""

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
    """Delete all runs of a subject with all data, and the state of their conversations.

    If events or spans of these runs arrive later, they are rejected. The response contains the
    numbers of deleted rows, and the number of rows that remain in any table.
    """
    return ErasureSchema.model_validate(await writer.delete_subject(subject))
