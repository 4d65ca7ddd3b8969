"""The tables that belong to projects: projects, keys, sign-ins, analysts, prices, and sessions.

The first five are small. They are reference tables on Citus, so that their unique constraints need
no `root_plan_id`. The tables of sessions are distributed by session.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    JSON,
    CheckConstraint,
    Column,
    Computed,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlmodel import Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.record_classes import Int64
from tracer.storage.postgres.schema.columns import TableRow

RATES = ("input_usd", "output_usd", "cache_read_usd", "cache_write_usd", "reasoning_usd")
"""The columns of a price that are rates."""


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
    summed_at: datetime | None = None
    """The roll-ups of tool statistics contain all changes that were committed before this time;
    null before the first pass of the roll-up job has ended."""


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
