"""The table of conversations: their state and their runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, JSON, Column, Computed, Index, PrimaryKeyConstraint, Text, Uuid, text
from sqlmodel import Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.record_classes import Int64
from tracer.storage.postgres.schema.columns import TableRow

_SESSION = "regexp_replace(session_id, '@[0-9a-f]*$', '')"


class SessionStateRow(TableRow, table=True):
    """A conversation: its runs, and the state that tools and hooks store between them."""

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
    """A JSON object. No `jsonb`: that cannot hold NUL, or a number exactly."""
    revision: Int64
    """How many times the state was changed."""
    updated_at: datetime
    """When the state was changed or a run was added last, by the server's clock."""
    run_ids: list[UUID] = Field(
        default_factory=list, sa_type=ARRAY(Uuid), sa_column_kwargs={"server_default": "{}"}
    )
    """The newest 100 runs of the conversation, oldest first; deleted ones may be among them."""
    session: str = Field(sa_column=Column(Text, Computed(_SESSION, persisted=True)))
    """The session's id as runs have it: `session_id` up to its last `@`."""
