"""Routes that read and change the settings of the caller's project."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import Administering, ProjectSettingsDep, Reading
from api.projects.schemas import ProjectChange, ProjectSchema
from tracer.records.access import Caller
from tracer.records.project_settings import ProjectSettings

router = APIRouter(prefix="/api/project", tags=["access"])


@router.get("")
async def read_project(project_settings: ProjectSettingsDep, caller: Reading) -> ProjectSchema:
    """Read the caller's project: how long it stores runs, and how much of their data."""
    return _shown(caller, await project_settings.read())


@router.patch("")
async def change_project(
    wanted: ProjectChange, project_settings: ProjectSettingsDep, caller: Administering
) -> ProjectSchema:
    """Change the project's settings. Other servers apply them within two seconds."""
    return _shown(caller, await project_settings.change(**wanted.changes()))


def _shown(caller: Caller, settings: ProjectSettings) -> ProjectSchema:
    return ProjectSchema(
        name=caller.project,
        keep_days=settings.keep_days,
        keep_runs=settings.keep_runs,
        payloads=settings.payloads,
    )
