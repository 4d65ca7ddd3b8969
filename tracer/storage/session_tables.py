"""The table of what tools and hooks keep of conversations."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Column, PrimaryKeyConstraint, Text
from sqlmodel import Field, SQLModel

from tracer.ids import DEFAULT_PROJECT_ID
from tracer.records import MOMENT_TYPE, RecordConfig


class SessionStateRow(SQLModel, table=True):
    """What tools and hooks keep of a conversation, from one run of it to the next."""

    __tablename__ = "session_state"
    __table_args__ = (PrimaryKeyConstraint("session_id", "project_id"),)
    model_config = RecordConfig(use_attribute_docstrings=True)

    project_id: int = Field(default=DEFAULT_PROJECT_ID, primary_key=True)
    """The project that the session belongs to."""
    session_id: str = Field(sa_type=Text, primary_key=True)
    """The conversation; without one, the id of the run."""
    state: object = Field(sa_column=Column(JSON, nullable=False))
    """A JSON object. No `jsonb`: that cannot hold NUL, or a number exactly."""
    revision: int = Field(sa_type=BigInteger)
    """How many times it was changed."""
    updated_at: datetime = Field(sa_type=MOMENT_TYPE)
    """When it was changed last, by the server's clock."""
