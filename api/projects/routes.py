"""The caller's project: what it keeps, and for how long."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import Administering, Kept, Reading
from api.projects.schemas import ProjectChange, ProjectSchema
from tracer.records.access import Caller
from tracer.records.project_settings import ProjectSettings

router = APIRouter(prefix="/api/project", tags=["access"])


@router.get("")
async def read_project(kept: Kept, caller: Reading) -> ProjectSchema:
    """Read what the key's project keeps, and for how long."""
    return _shown(caller, await kept.read())


@router.patch("")
async def change_project(wanted: ProjectChange, kept: Kept, caller: Administering) -> ProjectSchema:
    """Change what the project keeps. Other servers go by it within two seconds."""
    return _shown(caller, await kept.change(**wanted.changes()))


def _shown(caller: Caller, settings: ProjectSettings) -> ProjectSchema:
    return ProjectSchema(
        name=caller.project,
        keep_days=settings.keep_days,
        keep_runs=settings.keep_runs,
        payloads=settings.payloads,
        keep_spans=settings.keep_spans,
    )
