"""The tables of statistics: how tools' calls of old hours went, and which hours changed since."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    text,
)
from sqlmodel import Field, SQLModel

from tracer.ids import DEFAULT_PROJECT_ID
from tracer.records import MOMENT_TYPE, RecordConfig


class SummedRangeRow(SQLModel, table=True):
    """Which hours of a project are summed up: all between two moments, those without calls too."""

    __tablename__ = "summed_range"
    model_config = RecordConfig(use_attribute_docstrings=True)

    project_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """The project."""
    since: datetime | None = Field(default=None, sa_type=MOMENT_TYPE)
    """From which hour on; null: there is no earlier call."""
    until: datetime = Field(sa_type=MOMENT_TYPE)
    """The first hour that is not summed up yet."""
    summed_at: datetime = Field(sa_type=MOMENT_TYPE)
    """When some were summed up last."""


class SummedCallsRow(SQLModel, table=True):
    """How the calls of one tool that started within an hour, or a day, went."""

    __tablename__ = "summed_calls"
    __table_args__ = (
        # A name may be too long for an index.
        PrimaryKeyConstraint("project_id", "hours", "since", "number"),
        CheckConstraint("hours IN (1, 24)", name="summed_calls_are_of_an_hour_or_a_day"),
        CheckConstraint(
            "cardinality(buckets) = cardinality(bucket_counts)",
            name="summed_calls_have_a_histogram",
        ),
        Index("summed_calls_by_name", "project_id", text("(tool_name::name)"), "hours", "since"),
        Index(
            "summed_calls_opened_before",
            "project_id",
            "since",
            postgresql_where=text("hours = 1 AND opened_since < since"),
        ),
    )
    model_config = RecordConfig(use_attribute_docstrings=True)

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project."""
    hours: int = Field(sa_type=SmallInteger, primary_key=True)
    """1; or 24, where that whole day is summed up, from its hours."""
    since: datetime = Field(sa_type=MOMENT_TYPE, primary_key=True)
    """When the hour or the day began, in UTC."""
    number: int = Field(primary_key=True)
    """Tells the tools of that time apart; counted by name."""
    tool_name: str = Field(sa_type=Text)
    """The tool."""
    tool_type: str | None = Field(default=None, sa_type=Text)
    """The kind of tool; of several, the last by name."""
    calls: int = Field(sa_type=BigInteger)
    """How many calls started."""
    succeeded: int = Field(sa_type=BigInteger)
    """How many of them succeeded."""
    failures: int = Field(sa_type=BigInteger)
    """How many failed."""
    cancelled: int = Field(sa_type=BigInteger)
    """How many were cancelled."""
    abandoned: int = Field(sa_type=BigInteger)
    """How many are open, and the lease of their recorder ran out."""
    running: int = Field(sa_type=BigInteger)
    """How many are open otherwise."""
    sub_plans: int = Field(sa_type=BigInteger)
    """How many sub-plans they opened."""
    opened_since: datetime | None = Field(default=None, sa_type=MOMENT_TYPE)
    """When the first of these started, which by another clock may be before."""
    latest_at: datetime = Field(sa_type=MOMENT_TYPE)
    """When the latest call started, or else was recorded."""
    least_ms: float | None = None
    """The least duration, in milliseconds; null where none ended."""
    greatest_ms: float | None = None
    """The greatest duration."""
    slowest_id: UUID | None = None
    """The call that took it; of several, the last by id."""
    failed_at: datetime | None = Field(default=None, sa_type=MOMENT_TYPE)
    """When the failed call ended that ended last, or else started; null where none failed."""
    failed_id: UUID | None = None
    """That call; of several, the last by id."""
    buckets: list[int] = Field(sa_column=Column(ARRAY(SmallInteger), nullable=False))
    """The numbers of the histogram's buckets, in order. See `tracer.storage.duration_buckets`."""
    bucket_counts: list[int] = Field(sa_column=Column(ARRAY(BigInteger), nullable=False))
    """How many durations are in each."""


class ChangedHourRow(SQLModel, table=True):
    """A mark: calls of an old hour changed, and it is to be summed up, again or for once."""

    __tablename__ = "changed_hour"
    __table_args__ = (PrimaryKeyConstraint("project_id", "hour", "mark_id"),)
    model_config = RecordConfig(use_attribute_docstrings=True)

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project."""
    hour: datetime = Field(sa_type=MOMENT_TYPE, primary_key=True)
    """When the hour began."""
    mark_id: UUID = Field(
        primary_key=True, sa_column_kwargs={"server_default": text("gen_random_uuid()")}
    )
    """Tells marks apart: two that write at once share none, so that neither waits."""
