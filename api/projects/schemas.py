"""Schemas of a project's settings, and of the result of deleting a subject's data."""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

from pydantic import ConfigDict, Field

from api.keys.schemas import ClosedSchema
from tracer.records.payloads import PayloadPolicy
from tracer.records.project_settings import SettingsChange

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
            "examples": [{"runs": 3, "records": 57, "spans": 0, "left": 0, "unprojected": []}]
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
    """Runs that may belong to the subject. Their spans could not be converted to records, so their
    subject is unknown."""
