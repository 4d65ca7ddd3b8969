"""The tables of runs and of their leases, and the columns that tables share."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefinedType
from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Enum,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    Uuid,
    false,
    text,
    true,
)
from sqlmodel import Field, SQLModel
from sqlmodel.main import FieldInfoMetadata

from tracer.records import DEFAULT_PROJECT_ID, Status
from tracer.records.record_classes import Int64, Width

# --- The base class of the tables: the type of a field determines its column.

_STATUS = Enum(Status, name="record_status", values_callable=lambda kind: [s.value for s in kind])
LISTS = (list[str], list[UUID])
_TYPES: dict[Any, Any] = {
    str: Text,
    datetime: DateTime(timezone=True),
    list[str]: ARRAY(Text),
    list[UUID]: ARRAY(Uuid),
    Int64: BigInteger,
    Status: _STATUS,
}
_TYPES |= {type_ | None: column for type_, column in _TYPES.items()}
"""The column types that differ from those of SQLModel."""


class TableRow(SQLModel):
    """The base class of all tables."""

    model_config = {"use_attribute_docstrings": True}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.metadata = [_column(field), *field.metadata]


def _column(field: FieldInfo) -> FieldInfoMetadata:
    """Return a field's column. Settings that the field lacks are taken from its type."""
    stated = [each for each in field.metadata if isinstance(each, FieldInfoMetadata)]
    column = stated[0] if stated else FieldInfoMetadata()
    is_list = field.annotation in LISTS and not field.is_required()
    if is_list and isinstance(column.sa_type, PydanticUndefinedType):
        column = replace(column, nullable=True)  # an empty list is stored as null
    if isinstance(column.sa_type, PydanticUndefinedType):
        type_ = Int64 if Width.BITS_64 in field.metadata else field.annotation
        if type_ in _TYPES:
            column = replace(column, sa_type=_TYPES[type_])
    if isinstance(field.default, bool):
        default = true() if field.default else false()
        column = replace(column, sa_column_kwargs={"server_default": default})
    return column


# --- Tables that belong to runs, except the tables of records and leases.
#
# They contain blocks of spans, runs with pending spans, sessions of log records, removed records,
# and the roll-ups of tool calls.


def _refers_to_run(name: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["project_id", "root_plan_id"],
        ["run.project_id", "run.root_plan_id"],
        name=name,
        deferrable=True,
        initially="DEFERRED",
    )


class BlockRow(TableRow, table=True):
    """A block: the spans or log records of one run that arrived in one request, compressed."""

    __tablename__ = "otel_block"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "key", "project_id"),
        _refers_to_run("block_refers_to_run"),
        CheckConstraint("octet_length(key) = 16", name="block_has_a_key"),
        CheckConstraint("spans > 0 AND size > 0", name="block_holds_spans"),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run's id: the trace id, or for log records of a session a hash of the session id."""
    key: bytes = Field(primary_key=True)
    """16 bytes of BLAKE2b over the uncompressed message."""
    spans: int
    """The number of spans and log records in the message. A span may occur in several blocks."""
    size: Int64
    """The size of the uncompressed message in bytes."""
    recorded_at: datetime
    """When the server stored the block."""
    body: bytes
    """A header (format version, codec, size) and the compressed message: OTLP's `TracesData`, whose
    field 2 holds `ResourceLogs`."""


class PendingRunRow(TableRow, table=True):
    """A run with blocks of spans from which no records were computed yet."""

    __tablename__ = "pending_run"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "project_id"),
        _refers_to_run("pending_run_refers_to_run"),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run."""
    arrived: Int64
    """Grows with each accepted request. A projection sets `run.projected` to the number that it has
    read."""
    spans: Int64
    """The number of spans in the blocks that are pending."""
    size: Int64
    """The uncompressed size of the blocks that are pending, in bytes."""
    since: datetime
    """When the first of the pending blocks arrived."""
    seen_at: datetime | None = None
    """When the last of the pending blocks arrived, which counts as a heartbeat. Null if no spans
    arrived, and the run is only projected again."""
    due_at: datetime
    """When to project the run. `infinity` if its projection failed too often."""
    attempts: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """How many projections of the run have begun since the last one that was committed."""
    attempted_at: datetime | None = None
    """When the latest of these projections began."""
    with_prices: bool = False
    """Whether the projection computes costs again from the current prices."""
    failure: str | None = None
    """The error of the last attempt; null if none was recorded."""


class SessionRow(TableRow, table=True):
    """A session that a run's log records name.

    Log records that name the session but no trace then belong to the run, too. They are stored as
    blocks of a separate run without records: the run of the session.
    """

    __tablename__ = "otel_session"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "session_run_id", "project_id"),
        _refers_to_run("otel_session_refers_to_run"),
        Index("otel_session_by_session", "project_id", "session_run_id"),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run."""
    session_run_id: UUID = Field(primary_key=True)
    """The id of the run of the session: a hash of the session's id. This run may not exist yet."""


class RemovedRecordRow(TableRow, table=True):
    """A record that disappeared when the records of its run were computed again.

    Clients that show the run live need it to remove the record.
    """

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
    """The record's id. If a later projection created the record again, the record's own table also
    contains it."""
    kind: str
    """The kind of the record: `plan`, `step`, `thinkAct` or `toolCall`."""
    revision: Int64
    """The run's revision after the record was last removed."""


class RunLinkRow(TableRow, table=True):
    """A run or a tool call that another run may continue.

    A run has a row for each candidate, also if it continues none of them, so that a candidate that
    changes or disappears is noticed.
    """

    __tablename__ = "run_link"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "number", "project_id"),
        _refers_to_run("run_link_refers_to_run"),
        Index("run_link_by_continued_run", "project_id", "continued_run_id"),
        Index(
            "run_link_by_call",
            "project_id",
            "tool_call_id",
            postgresql_where=text("tool_call_id IS NOT NULL"),
        ),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the run belongs to."""
    root_plan_id: UUID = Field(primary_key=True)
    """The run that continues, or may continue, another one."""
    number: int = Field(primary_key=True)
    """Distinguishes the rows of a run."""
    tool_call_id: UUID | None = None
    """The tool call of the other run; null if the run as a whole is continued."""
    continued_run_id: UUID | None = None
    """The other run. It may not exist. Null if no run has the tool call."""
    is_link: bool
    """Whether the run continues it. Otherwise it is missing, started later, or is one of several
    candidates."""
    inferred_from: str | None = None
    """The evidence for the link; null if the run named the id of the call or of the run."""


class _Figures(TableRow):
    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project."""
    hour: datetime = Field(primary_key=True)
    """When the hour begins, in UTC. The row counts the calls that started in this hour, or that
    were recorded in it if they have no start."""
    number: int = Field(primary_key=True)
    """Distinguishes the tools of an hour. It replaces the name in the primary key, because a name
    may be too long."""
    tool_name: str
    """The tool."""
    tool_type: str | None = None
    """The kind of tool. If the calls have several kinds, the last one in alphabetical order."""
    calls: Int64
    """The number of calls."""
    succeeded: Int64
    """The number of calls that succeeded."""
    failed: Int64
    """The number of calls that failed."""
    failed_below: Int64
    """How many of these opened a sub-plan that failed."""
    cancelled: Int64
    """The number of calls that were cancelled."""
    abandoned: Int64
    """The number of open calls whose recorder's lease has expired."""
    running: Int64
    """The number of open calls that are not abandoned."""
    sub_plans: Int64
    """The number of sub-plans that the calls opened."""
    latest_at: datetime
    """When the latest call started, or was recorded if it has no start."""
    greatest_ms: float | None = None
    """The longest duration in milliseconds; null if no call has ended."""
    failed_at: datetime | None = None
    """When the latest failed call ended, or started if it has no end; null if no call failed."""
    buckets: list[int] = Field(sa_type=ARRAY(SmallInteger))
    """The histogram's bucket numbers, ascending; see `rollups`."""
    bucket_counts: list[int] = Field(sa_type=ARRAY(BigInteger))
    """The number of durations in each bucket."""
    own_buckets: list[int] | None = Field(default=None, sa_type=ARRAY(SmallInteger))
    """The bucket numbers of the calls' own times: their durations without the sub-plans that they
    opened. Null if they opened none."""
    own_bucket_counts: list[int] | None = Field(default=None, sa_type=ARRAY(BigInteger))
    """The number of own times in each bucket."""


class RunGroupRow(_Figures, table=True):
    """The statistics of the calls of one tool that started in one run within one hour."""

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
    """The statistics of the calls of one tool that started within one hour: sums of `run_group`."""

    __tablename__ = "tool_hour"
    __table_args__ = (
        PrimaryKeyConstraint("project_id", "hour", "number"),
        Index("tool_hour_by_name", "project_id", text("(tool_name::name)"), "hour"),
    )


class _DayFigures(TableRow):
    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project."""
    day: date = Field(sa_column_kwargs={"nullable": False})
    """The day, in UTC, on which the runs started, or were recorded if they have no start."""
    number: int = Field(primary_key=True)
    """Distinguishes the rows, whose texts may be too long for a primary key."""
    service_name: str | None = None
    """The service that executed the runs."""
    deployment_environment: str | None = None
    """The environment of the service."""
    agents: list[str]
    """The agents that took part in the runs, or the agent of the model calls; at most a hundred,
    sorted, each cut to 200 characters."""
    models: list[str]
    """The models that the runs used, or the model of the model calls, in the same form."""
    origin_kind: str | None = None
    """The kind of record where the runs failed, or that abandoned runs were waiting for."""
    origin_name: str | None = None
    """The name of its tool, model or agent."""
    error_type: str | None = None
    """The class or code of its error."""
    runs: Int64
    """The number of pieces of work; 0 in a row of model calls."""
    failed: Int64
    """How many of them failed."""
    abandoned: Int64
    """How many of them are abandoned."""
    running: Int64
    """How many of them are open, but not abandoned."""
    calls: Int64
    """The number of model calls; 0 in a row of runs."""
    input_tokens: Int64
    """The input tokens of these calls."""
    output_tokens: Int64
    """The output tokens of these calls."""
    cost_usd: Decimal
    """The sum of the known costs of these calls in US dollars."""
    unpriced_calls: Int64
    """How many of these calls have an unknown cost."""


class RunPartOfDayRow(_DayFigures, table=True):
    """The contribution of one run to its day.

    The first run of a piece of work has one row for the work. Each run has a row for each agent and
    model of its model calls.
    """

    __tablename__ = "run_part_of_day"
    __table_args__ = (
        PrimaryKeyConstraint("root_plan_id", "number", "project_id"),
        _refers_to_run("part_refers_to_run"),
        Index("run_part_of_day_by_day", "project_id", "day"),
    )

    root_plan_id: UUID = Field(primary_key=True)
    """The run."""
    duration_ms: float | None = None
    """How long the piece of work took, in milliseconds; null if it has not ended."""


class RunDayRow(_DayFigures, table=True):
    """The runs and the model calls of a day: sums of `run_part_of_day`."""

    __tablename__ = "run_day"
    __table_args__ = (PrimaryKeyConstraint("project_id", "day", "number"),)

    day: date = Field(primary_key=True)
    """The day, in UTC, on which the runs started, or were recorded if they have no start."""
    sample_run_id: UUID
    """One of the runs."""
    buckets: list[int] = Field(sa_type=ARRAY(SmallInteger))
    """The histogram of durations: its bucket numbers, ascending; see `rollups`."""
    bucket_counts: list[int] = Field(sa_type=ARRAY(BigInteger))
    """The number of durations in each bucket."""


# --- The tables of recorders: their leases, the check of leases, and the runs that they recorded.
#
# Whether a recorder is dead in a run is stored once, in `recorder_run.abandoned_at`. Records do not
# repeat it: `abandoned_at` and `shown_status` look it up.


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
    served_at: datetime | None = None
    """When a server last set this time to now; each does so every five seconds."""
    served_since: datetime | None = None
    """The time since which servers run without a pause of half a lease (30 s)."""
    due_checked_at: datetime | None = None
    """When a projector last looked for due runs whose notification got lost."""


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


def abandoned_at(row: str, runs: str = "") -> str:
    """Return the SQL of when a record was found abandoned; null if it is not.

    That is when its recorder was found dead, or when its run was left open below an ended root
    plan.

    The SQL is a subquery inside CASE, not a join, so that Postgres runs it only for unfinished
    records.

    Args:
        row: The row of a record or of a run.
        runs: What the ids of runs are compared with if the statement names its runs, such as
            `= %(run)s`: Citus then asks only their shards.
    """
    of_run = f"AND its_run.root_plan_id {runs}" if runs else ""
    of_recorder = f"AND recorder.root_plan_id {runs}" if runs else ""
    return f"""CASE WHEN {is_unfinished(row)} THEN (
        SELECT coalesce(its_run.left_open_at, recorder.abandoned_at) FROM run AS its_run
        LEFT JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id
            AND recorder.root_plan_id = its_run.root_plan_id {of_recorder}
            AND recorder.recorder_id = {whose(row, "its_run")}
        WHERE its_run.project_id = {row}.project_id AND its_run.root_plan_id = {row}.root_plan_id
            {of_run}
    ) END"""


def shown_status(row: str, runs: str = "") -> str:
    """Return the SQL of the status that is shown for a record.

    This is `abandoned` if the record is unfinished and its recorder is dead.
    """
    is_abandoned = f"{abandoned_at(row, runs)} IS NOT NULL"
    return f"CASE WHEN {is_abandoned} THEN 'abandoned' ELSE {row}.status::text END"


SETTLE_OPEN = """
UPDATE run SET
    status = CASE WHEN plans.is_shown_open THEN 'running' ELSE plans.status END,
    reason = CASE WHEN plans.is_shown_open THEN NULL ELSE plans.reason END,
    finished_at = CASE WHEN plans.is_shown_open THEN NULL ELSE plans.finished_at END,
    open_at = CASE WHEN plans.is_open THEN coalesce($2::timestamptz, run.open_at) END,
    left_open_at = CASE WHEN plans.is_open THEN run.left_open_at END
FROM (
    SELECT root.root_plan_id, root.status, root.reason, max(plan.finished_at) AS finished_at,
        bool_or(plan.status = 'running') AS is_open,
        bool_or(plan.status = 'running' AND its_run.left_open_at IS NULL) AS is_shown_open
    FROM plan_execution_record AS root
    JOIN plan_execution_record AS plan
        ON plan.project_id = root.project_id AND plan.root_plan_id = root.root_plan_id
    JOIN run AS its_run
        ON its_run.project_id = root.project_id AND its_run.root_plan_id = root.root_plan_id
    WHERE root.project_id = $1 AND root.root_plan_id = ANY($3::uuid[])
        AND plan.root_plan_id = ANY($3::uuid[]) AND its_run.root_plan_id = ANY($3::uuid[])
        AND root.plan_id = root.root_plan_id AND root.status >= 'cancelled'
    GROUP BY root.root_plan_id, root.status, root.reason
) AS plans
WHERE run.project_id = $1 AND run.root_plan_id = plans.root_plan_id
    AND run.root_plan_id = ANY($3::uuid[]) AND run.source = 'events' AND run.deleted_at IS NULL"""
"""Set the status and the end of the runs $3 whose root plans have ended, according to their
sub-plans. $2 is the time of the latest record; null leaves it."""
