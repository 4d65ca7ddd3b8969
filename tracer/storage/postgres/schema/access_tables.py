"""The tables of who may do what: projects, keys, sign-ins, analysts.

They are small and the same for all: on Citus they are reference tables, so that their unique
constraints need no `root_plan_id`.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, UniqueConstraint
from sqlmodel import Field

from tracer.records.record_classes import Int64
from tracer.storage.postgres.schema.columns import TableRow


class ProjectRow(TableRow, table=True):
    """What keys open: records of one project are not seen from another."""

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

    # No sequence: who makes one takes the next number, under a lock.
    project_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """What its records carry."""
    name: str
    """What it is called by who makes keys for it."""
    created_at: datetime
    """When it was made."""
    keep_days: int | None = None
    """Runs are pruned that many days after they ended; null: by age never."""
    keep_runs: Int64 | None = None
    """Of more runs than that, the oldest are pruned; null: however many there are."""
    payloads: str = Field(sa_column_kwargs={"server_default": "keep"})
    """What is kept of payloads that are recorded: `keep`, `preview` or `drop`."""
    summed_at: datetime | None = None
    """The roll-ups of tool statistics contain all changes that were committed before this time;
    null if no pass of the job has ended yet."""


class ApiKeyRow(TableRow, table=True):
    """What a program or a person shows to be let into one project."""

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
    """The key's own id, which opens nothing."""
    project_id: int
    """The project that it opens."""
    name: str
    """What it is for, in somebody's words."""
    scopes: list[str]
    """What it allows: `record`, `read`, `admin`."""
    digest: bytes
    """The SHA-256 of the key, which is kept nowhere."""
    created_at: datetime
    """When it was made."""
    last_used_at: datetime | None = None
    """When it was used last, to the minute."""
    revoked_at: datetime | None = None
    """When it was taken back; the row stays, to say that there was one."""


class SignInRow(TableRow, table=True):
    """A browser that showed a key, and is let in by a cookie since."""

    __tablename__ = "sign_in"
    __table_args__ = (
        ForeignKeyConstraint(["key_id"], ["api_key.key_id"], name="sign_in_with_key"),
        CheckConstraint("octet_length(digest) = 32", name="sign_in_has_a_digest"),
    )

    digest: bytes = Field(primary_key=True)
    """The SHA-256 of what the cookie holds."""
    key_id: UUID
    """The key that was shown: the sign-in ends with it."""
    expires_at: datetime
    """When it ends by itself."""


class AnalystRow(TableRow, table=True):
    """A role of the database that sees one project, by the views and tables."""

    __tablename__ = "analyst"
    __table_args__ = (
        ForeignKeyConstraint(["project_id"], ["project.project_id"], name="analyst_of_project"),
    )

    role_name: str = Field(primary_key=True)
    """The role, as it logs in."""
    project_id: int
    """The project that it sees."""
    was_made: bool
    """Whether the role was made with this row, and goes with it."""
