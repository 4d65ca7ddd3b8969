"""The tables of who may do what: projects, keys, sign-ins.

They are small and the same for all: on Citus they are reference tables, so that their unique
constraints need no `root_plan_id`.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    ForeignKeyConstraint,
    LargeBinary,
    Text,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel

from tracer.records import MOMENT_TYPE, RecordConfig


class ProjectRow(SQLModel, table=True):
    """What keys open: records of one project are not seen from another."""

    __tablename__ = "project"
    __table_args__ = (
        UniqueConstraint("name", name="project_has_its_own_name"),
        CheckConstraint("length(name) BETWEEN 1 AND 100", name="project_has_a_name"),
    )
    model_config = RecordConfig(use_attribute_docstrings=True)

    # No sequence: who makes one takes the next number, under a lock.
    project_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """What its records carry."""
    name: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=MOMENT_TYPE)


class ApiKeyRow(SQLModel, table=True):
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
    model_config = RecordConfig(use_attribute_docstrings=True)

    key_id: UUID = Field(primary_key=True)
    project_id: int
    """The project that it opens."""
    name: str = Field(sa_type=Text)
    """What it is for, in somebody's words."""
    scopes: list[str] = Field(sa_type=ARRAY(Text))
    """What it allows: `record`, `read`, `admin`."""
    digest: bytes = Field(sa_type=LargeBinary)
    """The SHA-256 of the key, which is kept nowhere."""
    created_at: datetime = Field(sa_type=MOMENT_TYPE)
    last_used_at: datetime | None = Field(default=None, sa_type=MOMENT_TYPE)
    """When it was used last, to the minute."""
    revoked_at: datetime | None = Field(default=None, sa_type=MOMENT_TYPE)
    """When it was taken back; the row stays, to say that there was one."""


class SignInRow(SQLModel, table=True):
    """A browser that showed a key, and is let in by a cookie since."""

    __tablename__ = "sign_in"
    __table_args__ = (
        ForeignKeyConstraint(["key_id"], ["api_key.key_id"], name="sign_in_with_key"),
        CheckConstraint("octet_length(digest) = 32", name="sign_in_has_a_digest"),
    )
    model_config = RecordConfig(use_attribute_docstrings=True)

    digest: bytes = Field(sa_type=LargeBinary, primary_key=True)
    """The SHA-256 of what the cookie holds."""
    key_id: UUID
    """The key that was shown: the sign-in ends with it."""
    expires_at: datetime = Field(sa_type=MOMENT_TYPE)
    """When it ends by itself."""
