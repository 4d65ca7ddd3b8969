"""The tables of who lives: the leases of recorders, and where to look when one runs out."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Interval,
    PrimaryKeyConstraint,
    text,
)
from sqlmodel import Field, SQLModel

from tracer.ids import DEFAULT_PROJECT_ID
from tracer.records import MOMENT_TYPE, RecordConfig


class RecorderLeaseRow(SQLModel, table=True):
    """Until when a recorder counts as alive; gone with the last that it left abandoned."""

    __tablename__ = "recorder_lease"
    __table_args__ = (
        PrimaryKeyConstraint("recorder_id", "project_id"),
        CheckConstraint("length > '0'", name="lease_has_a_length"),
        Index("recorder_lease_by_due_at", "due_at"),
    )
    model_config = RecordConfig(use_attribute_docstrings=True)

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that it records to."""
    recorder_id: UUID = Field(primary_key=True)
    """The recorder; of what no recorder is named for, the run."""
    seen_at: datetime = Field(sa_type=MOMENT_TYPE)
    """When it gave its last sign of life, by the database's clock."""
    length: timedelta = Field(sa_type=Interval)
    """How long that counts."""
    lag: timedelta | None = Field(default=None, sa_type=Interval)
    """The least time between an event and its arrival: what took longer waited in a spool."""
    due_at: datetime | None = Field(default=None, sa_type=MOMENT_TYPE)
    """When to look after it: when it runs out, or came back. Null: it ran out, and was settled."""


class RecorderRunRow(SQLModel, table=True):
    """A run that a recorder wrote to: where the reaper looks when its lease ran out."""

    __tablename__ = "recorder_run"
    __table_args__ = (
        PrimaryKeyConstraint("recorder_id", "root_plan_id", "project_id"),
        ForeignKeyConstraint(
            ["project_id", "root_plan_id"],
            ["run.project_id", "run.root_plan_id"],
            name="recorder_run_refers_to_run",
            deferrable=True,
            initially="DEFERRED",
        ),
        Index("recorder_run_by_root_plan_id", "root_plan_id", "project_id"),
    )
    model_config = RecordConfig(use_attribute_docstrings=True)

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    recorder_id: UUID = Field(primary_key=True)
    """The recorder; of what no recorder is named for, the run."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run."""
    may_be_open: bool = Field(default=True, sa_column_kwargs={"server_default": text("true")})
    """Whether it may have records in the run that are open and not abandoned."""
    has_abandoned: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    """Whether records of it were marked as abandoned since it was heard."""
