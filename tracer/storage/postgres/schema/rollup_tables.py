"""The tables of the hourly roll-ups: the contribution of each run, and the sum of all runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    text,
)
from sqlmodel import Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.record_classes import Int64
from tracer.storage.postgres.schema.columns import TableRow


class _Figures(TableRow):
    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project."""
    hour: datetime = Field(primary_key=True)
    """When the hour begins, in UTC. It contains the calls that started in it, or were recorded in
    it if they have no start."""
    number: int = Field(primary_key=True)
    """Distinguishes the tools of an hour: a name may be too long for a key."""
    tool_name: str
    """The tool."""
    tool_type: str | None = None
    """The kind of tool; if there are several, the last by name."""
    calls: Int64
    """The number of calls."""
    succeeded: Int64
    """The number of calls that succeeded."""
    failures: Int64
    """The number of calls that failed."""
    cancelled: Int64
    """The number of calls that were cancelled."""
    abandoned: Int64
    """The number of open calls whose recorder's lease has expired."""
    running: Int64
    """The number of other open calls."""
    sub_plans: Int64
    """The number of sub-plans that the calls opened."""
    latest_at: datetime
    """When the latest call started, or was recorded if it has no start."""
    greatest_ms: float | None = None
    """The longest duration in milliseconds; null if no call has ended."""
    failed_at: datetime | None = None
    """The latest end of a failed call, or its start if it has no end; null if none failed."""
    buckets: list[int] = Field(sa_type=ARRAY(SmallInteger))
    """The histogram's bucket numbers, ascending. See `duration_buckets.py`."""
    bucket_counts: list[int] = Field(sa_type=ARRAY(BigInteger))
    """The number of durations in each bucket."""


class RunGroupRow(_Figures, table=True):
    """The contribution of one run to the statistics of one tool and hour."""

    __tablename__ = "run_group"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "hour", "number", "project_id"),
        ForeignKeyConstraint(
            ["project_id", "root_plan_id"],
            ["run.project_id", "run.root_plan_id"],
            name="group_refers_to_run",
            deferrable=True,
            initially="DEFERRED",
        ),
        Index("run_group_by_hour", "project_id", "hour"),
    )

    root_plan_id: UUID = Field(primary_key=True)
    """The run."""


class ToolHourRow(_Figures, table=True):
    """The calls of one tool that started within one hour: the sum of `run_group`."""

    __tablename__ = "tool_hour"
    __table_args__ = (
        PrimaryKeyConstraint("project_id", "hour", "number"),
        Index("tool_hour_by_name", "project_id", text("(tool_name::name)"), "hour"),
    )
