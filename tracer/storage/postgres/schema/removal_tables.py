"""The table of records that were there and are not any more."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, PrimaryKeyConstraint
from sqlmodel import Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.record_classes import Int64
from tracer.storage.postgres.schema.columns import TableRow


class RemovedRecordRow(TableRow, table=True):
    """A record that a later projection of its run's spans had no more: for who watches the run."""

    __tablename__ = "removed_record"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "record_id", "project_id"),
        ForeignKeyConstraint(
            ["project_id", "root_plan_id"],
            ["run.project_id", "run.root_plan_id"],
            name="removed_record_refers_to_run",
            deferrable=True,
            initially="DEFERRED",
        ),
        CheckConstraint(
            "kind IN ('plan', 'step', 'thinkAct', 'toolCall')", name="removed_record_has_a_kind"
        ),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run."""
    record_id: UUID = Field(primary_key=True)
    """The record; where it came back since, its table has it again."""
    kind: str
    """What it was: `plan`, `step`, `thinkAct` or `toolCall`."""
    revision: Int64
    """The run's revision at the write that removed it last."""
