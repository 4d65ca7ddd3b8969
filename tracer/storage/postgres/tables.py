"""The tables of records and projects, and the metadata of all tables."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import (
    ARRAY,
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.engine import URL
from sqlmodel import Field, SQLModel

from tracer.records import DEFAULT_PROJECT_ID, Kind, Run
from tracer.records.pages import Conversation
from tracer.records.prices import RATES
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    Int64,
    PlanExecutionRecord,
    ThinkActRecord,
)
from tracer.storage.postgres.run_tables import (
    BlockRow,
    LeaseCheckRow,
    PendingRunRow,
    RecorderLeaseRow,
    RecorderRunRow,
    RemovedRecordRow,
    RunDayRow,
    RunGroupRow,
    RunLinkRow,
    RunPartOfDayRow,
    SessionRow,
    TableRow,
    ToolHourRow,
)

# --- The tables that belong to projects: projects, keys, sign-ins, analysts, prices, and sessions.
#
# The first five are small. They are reference tables on Citus, so that their unique constraints
# need no `root_plan_id`. The tables of sessions and conversations are distributed by session.


class ProjectRow(TableRow, table=True):
    """A project: the owner of keys and records. Projects cannot see each other's records."""

    __tablename__ = "project"
    __table_args__ = (
        UniqueConstraint("name", name="project_has_its_own_name"),
        CheckConstraint("length(name) BETWEEN 1 AND 100", name="project_has_a_name"),
        CheckConstraint("keep_days BETWEEN 1 AND 36500", name="project_keeps_some_days"),
        CheckConstraint("keep_runs > 0", name="project_keeps_some_runs"),
        CheckConstraint(
            "payloads IN ('keep', 'preview', 'drop')", name="project_has_a_payload_policy"
        ),
    )

    # No sequence: a new project gets the next number, under a lock.
    project_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """The project's id."""
    name: str
    """The project's name."""
    created_at: datetime
    """When it was created."""
    keep_days: int | None = None
    """Runs are deleted this many days after their end; null: age does not matter."""
    keep_runs: Int64 | None = None
    """If the project has more runs, the oldest are deleted; null: no limit."""
    payloads: str = Field(sa_column_kwargs={"server_default": "keep"})
    """How payloads are stored: `keep`, `preview` (the beginning) or `drop`."""
    erased_at: datetime | None = None
    """When the data of a user was erased last. Search indexes are built again afterwards."""
    summed_at: datetime | None = None
    """The roll-ups of tool statistics contain all changes that were committed before this time;
    null before the first pass has ended."""


class ApiKeyRow(TableRow, table=True):
    """An API key, which gives a program or a person access to one project."""

    __tablename__ = "api_key"
    __table_args__ = (
        UniqueConstraint("digest", name="api_key_is_nobody_elses"),
        ForeignKeyConstraint(["project_id"], ["project.project_id"], name="api_key_of_project"),
        CheckConstraint("length(name) BETWEEN 1 AND 100", name="api_key_has_a_name"),
        CheckConstraint(
            "scopes <@ '{record,read,admin}' AND cardinality(scopes) > 0",
            name="api_key_allows_something",
        ),
        CheckConstraint("octet_length(digest) = 32", name="api_key_has_a_digest"),
    )

    key_id: UUID = Field(primary_key=True)
    """The key's id. It is not secret."""
    project_id: int
    """The project that the key gives access to."""
    name: str
    """The name that the key's creator chose."""
    scopes: list[str]
    """The allowed actions: `record`, `read`, `admin`."""
    digest: bytes
    """The SHA-256 of the key. The key itself is not stored."""
    created_at: datetime
    """When it was created."""
    last_used_at: datetime | None = None
    """The time of the last use, to the minute."""
    revoked_at: datetime | None = None
    """When the key was revoked. The row is kept as a record."""


class SignInRow(TableRow, table=True):
    """A browser session that was opened with a key and is identified by a cookie."""

    __tablename__ = "sign_in"
    __table_args__ = (
        ForeignKeyConstraint(["key_id"], ["api_key.key_id"], name="sign_in_with_key"),
        CheckConstraint("octet_length(digest) = 32", name="sign_in_has_a_digest"),
    )

    digest: bytes = Field(primary_key=True)
    """The SHA-256 of the cookie's value."""
    key_id: UUID
    """The key that was used. Revoking it ends the sign-in."""
    expires_at: datetime
    """When the sign-in expires."""


class AnalystRow(TableRow, table=True):
    """An analyst: a database role that can read one project, in the views and in the tables."""

    __tablename__ = "analyst"
    __table_args__ = (
        ForeignKeyConstraint(["project_id"], ["project.project_id"], name="analyst_of_project"),
    )

    role_name: str = Field(primary_key=True)
    """The name of the database role."""
    project_id: int
    """The project that the role can read."""
    was_made: bool
    """True if `tracer analysts add` created the role. `tracer analysts remove` then drops it."""


class ModelPriceRow(TableRow, table=True):
    """A project's own price of a model. Rates are US dollars for a million tokens."""

    __tablename__ = "model_price"
    __table_args__ = (
        PrimaryKeyConstraint("project_id", "model", "provider", "valid_from"),
        ForeignKeyConstraint(["project_id"], ["project.project_id"], name="model_price_of_project"),
        CheckConstraint("length(model) BETWEEN 1 AND 200", name="model_price_names_a_model"),
        CheckConstraint(
            " AND ".join(f"{rate} BETWEEN 0 AND 1000000" for rate in RATES),
            name="model_price_has_rates",
        ),
    )

    project_id: int = Field(primary_key=True)
    """The project."""
    model: str = Field(primary_key=True)
    """The name of a model, or a prefix of model names followed by `*`."""
    provider: str = Field(primary_key=True)
    """The provider to which the price applies; empty: every provider."""
    valid_from: date = Field(primary_key=True)
    """The first day, in UTC, on which the price holds."""
    input_usd: Decimal
    """The rate of input tokens."""
    output_usd: Decimal
    """The rate of output tokens."""
    cache_read_usd: Decimal | None = None
    """The rate of input tokens that were read from a cache; null: the rate of input tokens."""
    cache_write_usd: Decimal | None = None
    """The rate of input tokens that were written to a cache; null: the rate of input tokens."""
    reasoning_usd: Decimal | None = None
    """The rate of output tokens of reasoning; null: the rate of output tokens."""


_SESSION = "regexp_replace(session_id, '@[0-9a-f]*$', '')"


class SessionStateRow(TableRow, table=True):
    """A conversation of several runs, with the state that tools and hooks store between runs."""

    __tablename__ = "session_state"
    __table_args__ = (
        PrimaryKeyConstraint("session_id", "project_id"),
        Index("session_state_by_session", "project_id", text("(session::name)")),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the session belongs to."""
    session_id: str = Field(primary_key=True)
    """The session's id, `@`, and a digest of the caller's id if there is a caller."""
    state: object = Field(sa_column=Column(JSON, nullable=False))
    """A JSON object, as text. `jsonb` cannot represent NUL or all numbers exactly."""
    revision: Int64
    """How many times the state was changed."""
    updated_at: datetime
    """When the state was last changed or a run was last added, by the server's clock."""
    run_ids: list[UUID] = Field(
        default_factory=list, sa_type=ARRAY(Uuid), sa_column_kwargs={"server_default": "{}"}
    )
    """The newest 100 runs of the conversation, oldest first; deleted ones may be among them."""
    session: str = Field(sa_column=Column(Text, Computed(_SESSION, persisted=True)))
    """The session id that runs have in `run.session_id`: this row's `session_id` up to its last
    `@`."""


class ConversationRow(TableRow, Conversation, table=True):
    """The figures of a conversation, which the linker derives from the runs of a session."""

    __tablename__ = "conversation"
    __table_args__ = (
        PrimaryKeyConstraint("session_key", "project_id"),
        Index("conversation_by_last_at", "project_id", "last_at", "session_key"),
        Index("conversation_by_moved_at", "project_id", "moved_at"),
    )

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the conversation belongs to."""
    session_key: UUID = Field(primary_key=True)
    """16 bytes of BLAKE2b over the session's id, which may be too long for an index."""
    moved_at: datetime
    """When `last_at` changed last. Each change in a project has a later time than those before."""
    moves: list[datetime] = Field(sa_type=ARRAY(DateTime(timezone=True)))
    """The recent changes of `last_at`, oldest first: pairs of the time and of the earlier value, a
    time in the far future if the row is new."""


# --- The tables: one per kind of record, spans, removed records.
#
# Every key of a record contains `project_id` and `root_plan_id`. So Citus stores a run on one
# worker, and no reference can cross projects or runs. For Citus, the schema also has no triggers,
# no sequences, and no unique constraints without `root_plan_id`. Exceptions are sessions, the
# leases of recorders, and the reference tables below. The foreign keys
# are deferred: a batch writes its records kind by kind, and plans, steps and calls refer to
# each other in a circle.
#
# `migrations/` makes these tables; a test compares both in the catalog.

TABLES: dict[Kind, str] = {
    Kind.RUN: "run",
    Kind.PLAN: "plan_execution_record",
    Kind.STEP: "agent_execution_record",
    Kind.THINK_ACT: "think_act_record",
    Kind.TOOL_CALL: "act_tool_info",
}
"""The table of each kind of record."""


def _reference(
    column: str, table: str, key: str, *, in_a_circle: bool = False
) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["project_id", "root_plan_id", column],
        [f"{table}.{name}" for name in ("project_id", "root_plan_id", key)],
        name=f"{column}_refers_to_{table}",
        deferrable=True,
        initially="DEFERRED",
        use_alter=in_a_circle,
    )


# While a table has no statistics, the planner considers any index whose leading columns are the
# project and the run as good as the primary key, and each check of a foreign key would then read
# the whole run. So ids lead. Indexes that cannot have ids first get this condition: it is always
# true, but no check implies it.
ALWAYS = "recorded_at > '-infinity'"

# No `coalesce`: for Postgres it is not leakproof, so an index on it would not be used behind a
# policy. The lines are as Postgres prints them, for the comparison with the catalog.
START = """(
CASE
    WHEN started_at IS NOT NULL THEN started_at
    ELSE recorded_at
END)"""
"""The SQL of the time when a record started. If it is unknown: when the record was stored."""


def start_of(row: str) -> str:
    """Return the SQL of a row's start, or of `recorded_at` if it has no start.

    Args:
        row: The alias of the row.
    """
    return f"coalesce({row}.started_at, {row}.recorded_at)"


IS_OPEN = "status < 'cancelled'"
IS_FAILED = "status = 'failed'"

IS_HEAD = "continues_run_id IS NULL"
"""The run begins a piece of work."""

MAY_BE_OPEN = f"({IS_OPEN} OR whole_status IN ('running', 'abandoned'))"
MAY_HAVE_FAILED = f"({IS_FAILED} OR whole_status = 'failed')"
"""The conditions of indexes for the run's own status and for that of its whole piece of work."""

RUN_NOT_DELETED = "deleted_at IS NULL"
"""Every query of `run` for readers needs this condition, because a deleted run stays as a
tombstone."""

IS_TOMBSTONE = "deleted_at IS NOT NULL AND swept_at IS NULL"
"""The run is deleted, and some of its rows may still exist."""

NOT_DELETED = (
    "root_plan_id <> ALL(ARRAY(SELECT root_plan_id FROM run"
    f" WHERE project_id = %(project_id)s AND {IS_TOMBSTONE}))"
)
"""The condition of every query for readers that finds records without reading their rows of `run`.

The rows of a deleted run remain until they are purged. Postgres computes the array once per query,
from an index that is nearly always empty. A join with `run` would cost time for each row that is
read.
"""


HAS_SESSION_CLAIMS = (
    "(follows_keys IS NOT NULL OR work_keys IS NOT NULL OR is_bare OR prompt_sequence IS NOT NULL)"
)
"""The run claims to continue other runs of its session."""


def _by_run(table: str) -> Index:
    """Return an index of the rows of each run, ordered by revision."""
    columns = ("project_id", "root_plan_id", "revision")
    return Index(f"{table}_by_run", *columns, postgresql_where=text(ALWAYS))


def _failed_by_run(table: str) -> Index:
    """Index the failed rows of each run: the list of runs shows where failures began."""
    return Index(f"{table}_failed_by_run", "root_plan_id", postgresql_where=text(IS_FAILED))


def _by(table: str, column: str, *, partly: bool = False) -> Index:
    """Return the index of a foreign key.

    Queries use it to find children, and Postgres uses it to check references when a parent is
    deleted.
    """
    where = text(f"{column} IS NOT NULL") if partly else None
    return Index(f"{table}_by_{column}", column, "root_plan_id", postgresql_where=where)


def _along(name: str, id_field: str, moment: str, where: str | None, *leading: str) -> Index:
    """Return the index of a list: by `leading`, then by `moment`, then by id.

    The list reads the index backwards, latest first.
    """
    columns = map(text, (*leading, moment))
    condition = None if where is None else text(where)
    return Index(name, "project_id", *columns, id_field, postgresql_where=condition)


def is_text(column: str, value: str) -> str:
    """Return the SQL condition that a column equals the parameter named `value`.

    The condition also compares the first 63 bytes, because the index contains only these.
    """
    return f"{column}::name = %({value})s::text::name AND {column} = %({value})s"


def is_one_of(column: str, values: str) -> str:
    """Return the SQL condition that a column equals one of some texts; see `is_text`.

    Without the collation, which is that of the column, the index would not be used.

    Args:
        column: The column.
        values: The SQL of the texts, an array.
    """
    names = f'{values}::text[]::name[] COLLATE "default"'
    return f"{column}::name = ANY({names}) AND {column} = ANY({values}::text[])"


def _by_text(table: str, column: str, *then: str) -> Index:
    """Return an index by a text column. The index contains the first 63 bytes of the text."""
    beginning, where = text(f"({column}::name)"), text(f"{column} IS NOT NULL")
    return Index(f"{table}_by_{column}", "project_id", beginning, *then, postgresql_where=where)


def _by_handle(table: str) -> Index:
    """Return the index of the endings of ids.

    All ids with one ending are a range of it. Under row-level security, only leakproof conditions
    use an index, and comparisons of texts are leakproof. `LIKE` is not.
    """
    return Index(f"{table}_by_handle", "handle_key", "project_id")


def _handle_key(id_field: str) -> Any:
    computed = Computed(f"reverse(right({id_field}::text, 10))", persisted=True)
    return Field(sa_column=Column(Text(collation="C"), computed))


def _key(column: str) -> PrimaryKeyConstraint:
    return PrimaryKeyConstraint(column, "root_plan_id", "project_id")


# For rows that are copied in, which may be done as the owner alone: they name no project.
_OF_THE_TRANSACTION = text("current_setting('tracer.project_id')::integer")


class _Stored(TableRow):
    # `recorder_run` has it, once per recorder and run.
    abandoned_at: ClassVar[None] = None

    project_id: int = Field(
        default=DEFAULT_PROJECT_ID,
        primary_key=True,
        sa_column_kwargs={"server_default": _OF_THE_TRANSACTION},
    )

    root_plan_id: UUID = Field(primary_key=True)
    recorded_at: datetime


class _Projectable(_Stored):
    digest: Int64 | None = None
    """64 bits of BLAKE2b over the columns that a projection wrote; null if the row has another
    source or is older than this column.
    """


class RunTable(_Stored, Run, table=True):
    """A root plan and all its records, with running totals."""

    __tablename__ = "run"
    __table_args__ = (
        CheckConstraint(
            "input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0"
            " AND tool_calls >= 0 AND failed_calls >= 0 AND unpriced_calls >= 0",
            name="run_totals_are_counts",
        ),
        CheckConstraint("source IN ('events', 'spans')", name="run_has_one_source"),
        _along("run_by_recorded_at", "root_plan_id", "recorded_at", RUN_NOT_DELETED),
        _along("run_of_agents", "root_plan_id", START, f"{RUN_NOT_DELETED} AND is_agent_work"),
        _along("run_by_start", "root_plan_id", START, RUN_NOT_DELETED),
        # Behind a policy a status can be a condition of an index, and no column: to compare
        # enumerations is not leakproof.
        _along("run_open", "root_plan_id", START, f"{RUN_NOT_DELETED} AND {MAY_BE_OPEN}"),
        _along("run_failed", "root_plan_id", START, f"{RUN_NOT_DELETED} AND {MAY_HAVE_FAILED}"),
        _along(
            "run_of_heads",
            "root_plan_id",
            START,
            f"{RUN_NOT_DELETED} AND is_agent_work AND {IS_HEAD}",
        ),
        _by_text("run", "session_id"),
        _by_text("run", "subject", "root_plan_id"),
        Index("run_open_below_root", "open_at", postgresql_where=text("open_at IS NOT NULL")),
        Index("run_to_settle", "settle_at", postgresql_where=text("settle_at IS NOT NULL")),
        Index(
            "run_to_sum_up",
            "project_id",
            "recorded_at",
            "root_plan_id",
            postgresql_where=text("NOT is_summed"),
        ),
        Index("run_by_change", "project_id", "changed_at", "root_plan_id"),
        Index("run_to_link", "project_id", "root_plan_id", postgresql_where=text("NOT is_linked")),
        Index(
            "run_by_head",
            "project_id",
            "head_id",
            postgresql_where=text("head_id IS NOT NULL"),
        ),
        Index(
            "run_of_claims",
            "project_id",
            text("(session_id::name)"),
            postgresql_where=text(f"session_id IS NOT NULL AND {HAS_SESSION_CLAIMS}"),
        ),
        Index("run_to_purge", "project_id", "root_plan_id", postgresql_where=text(IS_TOMBSTONE)),
        Index(
            "run_by_swept_at",
            "project_id",
            "swept_at",
            postgresql_where=text("swept_at IS NOT NULL"),
        ),
    )

    unpriced_calls: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The number of model calls that succeeded or used tokens, but have an unknown cost."""
    unread_spans: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The number of spans with token counts that no rule could read. Their costs are unknown."""
    refused_spans: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The number of spans and log records that were rejected with `run_too_large`."""
    source: str = "events"
    """The source of the records: `events`, or `spans` (a projection)."""
    is_agent_work: bool = True
    """False for a trace without agents, models and tools. It is listed only on request."""
    deleted_at: datetime | None = None
    """When the run was deleted. The row remains as a tombstone, which rejects late events."""
    open_at: datetime | None = None
    """When its last record was written, if a sub-plan is open below the ended root plan."""
    left_open_at: datetime | None = None
    """When such a run was left: open records are abandoned, and it has its root plan's status."""
    swept_at: datetime | None = None
    """When the last row of a deleted run was purged. Readers never see the remaining rows before
    that.
    """
    projected: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The value of `pending_run.arrived` that the last projection read; 0 before the first one."""
    projection_version: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The version of the projection code that computed the records."""
    projection_error: str | None = None
    """Why the newest spans are not projected; null if they are projected, or will be shortly."""
    next_projection_at: datetime | None = None
    """The run is not projected again before this time. After a projection, the pause is ten times
    as long as the projection took."""
    span_bytes: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The uncompressed size of the run's blocks in bytes, without pending blocks."""
    span_count: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The number of spans and log records in the run's blocks, without pending blocks."""
    span_records: bytes | None = None
    """The record of each span (`tracer.records.span_records`); null before a projection."""
    settle_at: datetime | None = None
    """When to merge the run's blocks; null if no blocks are left to merge."""
    summed_revision: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The revision of the run up to which `run_group` and `run_part_of_day` count it."""
    is_summed: bool = Field(
        default=False,
        sa_column=Column(
            Boolean, Computed("revision <= summed_revision", persisted=True), nullable=False
        ),
    )
    """True if these tables are up to date with the run's newest revision."""
    is_bare: bool = False
    """Whether the run consists of model calls and tool calls outside of any agent."""
    parts_revision: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The revision at which another run of the same piece of work changed last."""
    linked_revision: Int64 = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """The revision of the run that its links (`run_link`) were derived from. Negative if a run on
    which they depend has changed since."""
    linked_session_id: str | None = None
    """The session of the run when its links were derived. It stays in a tombstone until the links
    are derived again, so that the session's other runs are visited."""
    is_linked: bool = Field(
        default=False,
        sa_column=Column(
            Boolean, Computed("revision <= linked_revision", persisted=True), nullable=False
        ),
    )
    """True if the links are up to date."""
    changed_at: datetime = Field(sa_column_kwargs={"server_default": text("statement_timestamp()")})
    """When the revision of the run was raised last."""


# pydantic's mypy plugin gives both bases a `model_construct` of their own.
class PlanTable(_Projectable, PlanExecutionRecord, table=True):  # type: ignore[misc]
    """A root plan or a sub-plan. The row of a sub-plan refers to the tool call that opened it."""

    __tablename__ = "plan_execution_record"
    __table_args__ = (
        _key("plan_id"),
        ForeignKeyConstraint(
            ["project_id", "root_plan_id"],
            ["run.project_id", "run.root_plan_id"],
            name="root_plan_id_refers_to_run",
            deferrable=True,
            initially="DEFERRED",
        ),
        _reference("parent_plan_id", "plan_execution_record", "plan_id"),
        _reference("tool_call_id", "act_tool_info", "tool_call_id", in_a_circle=True),
        _reference("opened_by_step_id", "agent_execution_record", "step_id", in_a_circle=True),
        CheckConstraint(
            "started_at IS NULL OR plan_id = root_plan_id OR (parent_plan_id IS NOT NULL"
            " AND (tool_call_id IS NOT NULL OR opened_by_step_id IS NOT NULL))",
            name="plan_started_has_links",
        ),
        CheckConstraint(
            "plan_id <> root_plan_id OR (parent_plan_id IS NULL AND tool_call_id IS NULL"
            " AND opened_by_step_id IS NULL)",
            name="plan_at_the_root_has_no_parent",
        ),
        CheckConstraint("parent_plan_id <> plan_id", name="plan_is_not_its_own_parent"),
        CheckConstraint("position >= 0 AND depth >= 0", name="plan_has_counts"),
        # Without a condition, for the check when an old tombstone goes. Led by the run alone it is
        # never as good as the primary key.
        Index("plan_execution_record_by_run", "root_plan_id", "revision"),
        _failed_by_run("plan_execution_record"),
        _by_handle("plan_execution_record"),
        _by("plan_execution_record", "parent_plan_id", partly=True),
        _by("plan_execution_record", "tool_call_id", partly=True),
        _by("plan_execution_record", "opened_by_step_id", partly=True),
        Index(
            "plan_execution_record_by_start",
            "project_id",
            text(START),
            postgresql_where=text("tool_call_id IS NOT NULL"),
        ),
    )

    plan_id: UUID = Field(primary_key=True)
    handle_key: str | None = _handle_key("plan_id")
    """The last ten hexadecimal digits of the id, in reverse order."""


# As above.
class StepTable(_Projectable, AgentExecutionRecord, table=True):  # type: ignore[misc]
    """A step: one item of a plan, executed by one agent."""

    __tablename__ = "agent_execution_record"
    __table_args__ = (
        _key("step_id"),
        _reference("plan_id", "plan_execution_record", "plan_id"),
        CheckConstraint("status = 'unknown' OR plan_id IS NOT NULL", name="step_has_links"),
        CheckConstraint("position >= 0", name="step_has_counts"),
        _by_run("agent_execution_record"),
        _failed_by_run("agent_execution_record"),
        _by_handle("agent_execution_record"),
        _by("agent_execution_record", "plan_id"),
    )

    step_id: UUID = Field(primary_key=True)
    handle_key: str | None = _handle_key("step_id")
    """The last ten hexadecimal digits of the id, in reverse order."""


# As above.
class ThinkActTable(_Projectable, ThinkActRecord, table=True):  # type: ignore[misc]
    """A think-act: one request to a model and its answer, which can request tool calls."""

    __tablename__ = "think_act_record"
    __table_args__ = (
        _key("think_act_id"),
        _reference("step_id", "agent_execution_record", "step_id"),
        CheckConstraint("status = 'unknown' OR step_id IS NOT NULL", name="think_act_has_links"),
        CheckConstraint(
            "position >= 0 AND input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0",
            name="think_act_has_counts",
        ),
        _by_run("think_act_record"),
        _failed_by_run("think_act_record"),
        _by_handle("think_act_record"),
        _by("think_act_record", "step_id"),
    )

    think_act_id: UUID = Field(primary_key=True)
    handle_key: str | None = _handle_key("think_act_id")
    """The last ten hexadecimal digits of the id, in reverse order."""


# pydantic's mypy plugin gives both bases a `model_construct` of their own.
class ToolCallTable(_Projectable, ActToolInfo, table=True):  # type: ignore[misc]
    """One tool call: one request to run one tool."""

    __tablename__ = "act_tool_info"
    __table_args__ = (
        _key("tool_call_id"),
        _reference("step_id", "agent_execution_record", "step_id"),
        _reference("think_act_id", "think_act_record", "think_act_id"),
        _reference("parent_tool_call_id", "act_tool_info", "tool_call_id"),
        CheckConstraint("status = 'unknown' OR step_id IS NOT NULL", name="tool_call_has_links"),
        CheckConstraint(
            "parent_tool_call_id <> tool_call_id", name="tool_call_is_not_its_own_parent"
        ),
        CheckConstraint("position >= 0 AND attempt >= 1", name="tool_call_has_counts"),
        _by_run("act_tool_info"),
        _failed_by_run("act_tool_info"),
        _by_handle("act_tool_info"),
        _by("act_tool_info", "step_id"),
        _by("act_tool_info", "think_act_id", partly=True),
        _by("act_tool_info", "parent_tool_call_id", partly=True),
        # Without a condition, so that the planner has statistics of when calls started.
        _along("act_tool_info_by_start", "tool_call_id", START, None),
        _along("act_tool_info_open", "tool_call_id", START, IS_OPEN),
        _along("act_tool_info_failed", "tool_call_id", START, IS_FAILED),
        # Only the first 63 bytes of a name: an index entry has room for 2,700, and a name may have
        # megabytes. Unlike `left`, the cast is leakproof, which row-level security requires.
        _along("act_tool_info_by_name", "tool_call_id", START, "name IS NOT NULL", "(name::name)"),
        _along(
            "act_tool_info_failed_by_name",
            "tool_call_id",
            START,
            f"name IS NOT NULL AND {IS_FAILED}",
            "(name::name)",
        ),
        # In no order: few calls share the id, and each row has an entry.
        _by_text("act_tool_info", "provider_call_id"),
        _by_text("act_tool_info", "agent_key"),
        Index(
            "act_tool_info_with_ended_agent",
            "project_id",
            "root_plan_id",
            postgresql_where=text("agent_end_sequence IS NOT NULL"),
        ),
    )

    tool_call_id: UUID = Field(primary_key=True)
    handle_key: str | None = _handle_key("tool_call_id")
    """The last ten hexadecimal digits of the id, in reverse order."""


def _comment(row_class: type[SQLModel]) -> None:
    """Use the docstrings as comments of the table and its columns, which analysts read in psql."""
    table = SQLModel.metadata.tables[str(row_class.__tablename__)]
    table.comment = (row_class.__doc__ or "").strip()
    for parent in reversed(row_class.__mro__):
        if issubclass(parent, BaseModel):
            for name, field in parent.model_fields.items():
                if field.description and name in table.columns:
                    table.columns[name].comment = " ".join(field.description.split())


for _row_class in (
    RunTable,
    PlanTable,
    StepTable,
    ThinkActTable,
    ToolCallTable,
    BlockRow,
    PendingRunRow,
    RemovedRecordRow,
    SessionRow,
    SessionStateRow,
    ConversationRow,
    LeaseCheckRow,
    RecorderLeaseRow,
    RecorderRunRow,
    RunDayRow,
    RunGroupRow,
    RunLinkRow,
    RunPartOfDayRow,
    ToolHourRow,
    ProjectRow,
    ApiKeyRow,
    SignInRow,
    AnalystRow,
    ModelPriceRow,
):
    _comment(_row_class)


def unpriced(row: str) -> str:
    """Return 1 if the cost of a think-act is unknown, else 0, as SQL; see `is_unpriced`.

    Args:
        row: The name of the row, which may be null.
    """
    used = f"coalesce({row}.input_tokens, 0) + coalesce({row}.output_tokens, 0) > 0"
    known = f"{row}.cost_usd IS NOT NULL"
    return (
        f"CASE WHEN {known} OR {row}.status IS NULL THEN 0"
        f" WHEN {row}.status = 'succeeded' OR {used} THEN 1 ELSE 0 END"
    )


METADATA = SQLModel.metadata
"""The schema that the migrations must produce."""

_DIALECT = URL.create("postgresql+psycopg").get_dialect()()


def column_type(table: str, column: str) -> str:
    """Return the SQL type of a table's column."""
    table_column: Column[object] = METADATA.tables[table].columns[column]
    return table_column.type.compile(_DIALECT)
