"""Routes for the settings of the caller's project, and for deleting a subject's data."""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from api.dependencies import Administering, ProjectSettingsDep, Reading, Writer
from api.requests import StoredText
from api.routes.keys import ClosedSchema
from tracer.records.access import Caller, ProjectSettings, SettingsChange
from tracer.records.masks import PayloadPolicy

# --- Schemas of a project's settings, and of the result of deleting a subject's data.

_DAYS = Field(ge=1, le=36_500)
_RUNS = Field(ge=1, lt=2**63)


class ProjectSchema(ClosedSchema):
    """The caller's project and its settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ward",
                    "keepDays": 90,
                    "keepRuns": None,
                    "payloads": "preview",
                }
            ]
        }
    )

    name: str
    keep_days: int | None
    """Runs are deleted this many days after they ended; null: age has no effect."""
    keep_runs: int | None
    """The largest number of runs. If there are more, the oldest are deleted; null: no limit."""
    payloads: PayloadPolicy
    """How payloads are stored: completely, only their beginnings and sizes, or only their sizes."""


class ProjectChange(ClosedSchema):
    """A change of a project's settings. Omitted settings do not change; null removes a limit."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"keepDays": 90}, {"keepRuns": None, "payloads": "drop"}]}
    )

    keep_days: Annotated[int, _DAYS] | None = None
    """Delete runs this many days after they ended."""
    keep_runs: Annotated[int, _RUNS] | None = None
    """Delete the oldest runs if there are more than this number."""
    payloads: PayloadPolicy = PayloadPolicy.KEEP
    """How to store payloads that are recorded from now on."""

    def changes(self) -> SettingsChange:
        """Return the settings in the request."""
        return cast("SettingsChange", self.model_dump(exclude_unset=True))


class ErasureSchema(ClosedSchema):
    """The result of deleting all data of a subject."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **{"runs": 3, "records": 57, "spans": 0, "left": 0},
                    **{"unprojected": [], "partsOfOthers": []},
                }
            ]
        }
    )

    runs: int
    records: int
    """The number of deleted plans, steps, rounds and tool calls."""
    spans: int
    """The number of deleted OpenTelemetry spans."""
    left: int
    """The number of the subject's rows that remain in any table. It should be 0."""
    unprojected: list[UUID]
    """Runs that may belong to the subject. Their spans could not be converted to records, or it is
    unknown which runs they continue."""
    parts_of_others: list[UUID]
    """Runs of other subjects that continue deleted runs, or were continued by them. They remain."""


# --- Routes that read and change the settings of the caller's project.

router = APIRouter(prefix="/api/project", tags=["access"])


@router.get("")
async def read_project(project_settings: ProjectSettingsDep, caller: Reading) -> ProjectSchema:
    """Read the caller's project: how long it stores runs, and how much of their data."""
    return _project_schema(caller, await project_settings.read())


@router.patch("")
async def change_project(
    wanted: ProjectChange, project_settings: ProjectSettingsDep, caller: Administering
) -> ProjectSchema:
    """Change the project's settings. Other servers apply them within two seconds."""
    return _project_schema(caller, await project_settings.change(**wanted.changes()))


def _project_schema(caller: Caller, settings: ProjectSettings) -> ProjectSchema:
    return ProjectSchema(
        name=caller.project,
        keep_days=settings.keep_days,
        keep_runs=settings.keep_runs,
        payloads=settings.payloads,
    )


# --- The route that deletes all data of a subject: the person or entity that runs belong to.

subject_router = APIRouter(prefix="/api/subjects", tags=["runs"])

# Not in the path, because proxies rewrite `..`, `//` and `%2F`.
Subject = Annotated[StoredText, Query(min_length=1, description="The `subject` of the runs.")]


@subject_router.delete("")
async def delete_subject(subject: Subject, writer: Writer, caller: Administering) -> ErasureSchema:
    """Delete all runs of a subject with all data, and the state of their conversations.

    If events or spans of these runs arrive later, they are rejected. The response contains the
    numbers of deleted rows, and the number of rows that remain in any table.
    """
    return ErasureSchema.model_validate(await writer.delete_subject(subject))
