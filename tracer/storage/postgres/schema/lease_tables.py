"""The tables of recorders: their leases, the check of leases, and the runs that they recorded.

Whether a recorder is dead in a run is stored once, in `recorder_run.abandoned_at`. Records do not
repeat it: `abandoned_at` and `shown_status` look it up.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, PrimaryKeyConstraint, text
from sqlmodel import Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.storage.postgres.schema.columns import TableRow


class RecorderLeaseRow(TableRow, table=True):
    """The lease of a recorder: how long the recorder counts as alive after its last heartbeat.

    The lease is deleted with the recorder's last row in `recorder_run`.
    """

    __tablename__ = "recorder_lease"
    __table_args__ = (
        PrimaryKeyConstraint("recorder_id", "project_id"),
        CheckConstraint("length > '0'", name="lease_has_a_length"),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the recorder records to."""
    recorder_id: UUID = Field(primary_key=True)
    """The recorder's id. For spans, and for events that name no recorder, it is the run's id."""
    seen_at: datetime
    """The time of the recorder's last heartbeat or record, by the database's clock."""
    length: timedelta
    """How long the recorder counts as alive after a heartbeat."""
    lag: timedelta | None = None
    """The least time between an event and its arrival; events that took longer were spooled."""


class LeaseCheckRow(TableRow, table=True):
    """Since when heartbeats could arrive without interruption. The table has one row.

    No lease expires before its full length has passed since this time.
    """

    __tablename__ = "lease_check"
    __table_args__ = (CheckConstraint("is_only", name="lease_check_is_one_row"),)

    is_only: bool = Field(primary_key=True)
    """True."""
    checked_at: datetime | None = None
    """When a server last looked for expired leases; null before the first time."""
    since: datetime | None = None
    """The time since which servers looked with pauses that were shorter than a lease."""


class RecorderRunRow(TableRow, table=True):
    """A recorder and a run that it wrote to, and whether the recorder's lease has expired."""

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
        # A recorder that lives long may have many runs; few of them have this mark.
        Index(
            "recorder_run_abandoned",
            "recorder_id",
            "project_id",
            postgresql_where=text("abandoned_at IS NOT NULL"),
        ),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    recorder_id: UUID = Field(primary_key=True)
    """The recorder's id. For spans, and for events that name no recorder, it is the run's id."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run."""
    abandoned_at: datetime | None = None
    """When the recorder's lease expired. Its open records in the run are then shown as abandoned.
    Null while the recorder is alive."""


def whose(row: str, run: str) -> str:
    """Return the SQL of the `recorder_run.recorder_id` that a record belongs to.

    If the record names no recorder, this is the run's id. It is also the run's id if the run
    arrived as spans: such records may name recorders that wrote to another store.

    Args:
        row: The record's row.
        run: The row of its run.
    """
    return (
        f"CASE {run}.source WHEN 'events' THEN coalesce({row}.recorder_id, {row}.root_plan_id)"
        f" ELSE {row}.root_plan_id END"
    )


def is_unfinished(row: str) -> str:
    """Return the SQL condition that a record is unfinished.

    An unfinished record is shown as abandoned if its recorder is dead.
    """
    return f"{row}.status IN ('pending', 'running')"


def abandoned_at(row: str) -> str:
    """Return the SQL of when a record's recorder was found dead; null if it is alive.

    The SQL is a subquery inside CASE, not a join, so that Postgres runs it only for unfinished
    records.

    Args:
        row: The row of a record or of a run.
    """
    return f"""CASE WHEN {is_unfinished(row)} THEN (
        SELECT recorder.abandoned_at FROM run AS its_run
        JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id
            AND recorder.root_plan_id = its_run.root_plan_id
            AND recorder.recorder_id = {whose(row, "its_run")}
        WHERE its_run.project_id = {row}.project_id AND its_run.root_plan_id = {row}.root_plan_id
    ) END"""


def shown_status(row: str) -> str:
    """Return the SQL of the status that is shown for a record.

    This is `abandoned` if the record is unfinished and its recorder is dead.
    """
    return f"CASE WHEN {abandoned_at(row)} IS NOT NULL THEN 'abandoned' ELSE {row}.status::text END"
