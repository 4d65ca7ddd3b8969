"""What a project keeps, and what was erased of it, as the API shows and takes it."""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

from pydantic import ConfigDict, Field

from api.keys.schemas import ClosedSchema
from tracer.records.project_settings import KeptSpans
from tracer.redaction.payloads import PayloadPolicy
from tracer.storage.postgres.projects.projects import SettingsChange

_DAYS = Field(ge=1, le=36_500)
_RUNS = Field(ge=1, lt=2**63)


class ProjectSchema(ClosedSchema):
    """The caller's project, and what it keeps."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ward",
                    "keepDays": 90,
                    "keepRuns": None,
                    "payloads": "preview",
                    "keepSpans": "all",
                }
            ]
        }
    )

    name: str
    keep_days: int | None
    """Runs are deleted that many days after they ended; null: by age never."""
    keep_runs: int | None
    """Of more runs than that, the oldest are deleted; null: however many there are."""
    payloads: PayloadPolicy
    """What is kept of payloads: all, their beginnings and sizes, or their sizes alone."""
    keep_spans: KeptSpans
    """Which spans are kept of a run that has been quiet: all, or those of agent work."""


class ProjectChange(ClosedSchema):
    """What is to be changed of a project's settings. What is missing stays; null means for ever."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"keepDays": 90}, {"keepRuns": None, "payloads": "drop"}]}
    )

    keep_days: Annotated[int, _DAYS] | None = None
    """Delete runs that many days after they ended."""
    keep_runs: Annotated[int, _RUNS] | None = None
    """Delete the oldest of more runs than that."""
    payloads: PayloadPolicy = PayloadPolicy.KEEP
    """What to keep of payloads that are recorded from now on."""
    keep_spans: KeptSpans = KeptSpans.ALL
    """`agent`: remove spans that are neither agent, model nor tool work nor above it from runs that
    have been quiet for ten minutes, and traces without agent work. They cannot be restored."""

    def changes(self) -> SettingsChange:
        """Return the settings that the request names."""
        return cast("SettingsChange", self.model_dump(exclude_unset=True))


class ErasureSchema(ClosedSchema):
    """What was deleted on request, and what is left of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"runs": 3, "records": 57, "spans": 0, "left": 0, "unprojected": []}]
        }
    )

    runs: int
    records: int
    """Plans, steps, rounds and tool calls."""
    spans: int
    """OpenTelemetry spans as they came."""
    left: int
    """What is still there, counted in every table after the deletion: 0."""
    unprojected: list[UUID]
    """Runs of the project with spans that could not be projected: they may be of the subject."""
