"""The tables of spans: compressed blocks, and the runs whose spans are not projected yet."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, PrimaryKeyConstraint, text
from sqlmodel import Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.record_classes import Int64
from tracer.storage.postgres.schema.columns import TableRow


def _refers_to_run(name: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["project_id", "root_plan_id"],
        ["run.project_id", "run.root_plan_id"],
        name=name,
        deferrable=True,
        initially="DEFERRED",
    )


class BlockRow(TableRow, table=True):
    """Spans of one run that arrived in one request, compressed."""

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
    """The run: the trace id."""
    key: bytes = Field(primary_key=True)
    """16 bytes of BLAKE2b over the uncompressed message."""
    spans: int
    """The number of spans in the message. One span may occur in several blocks."""
    size: Int64
    """The size of the uncompressed message in bytes."""
    recorded_at: datetime
    """When the server stored it."""
    body: bytes
    """A header (format version, codec, size) and the compressed OTLP `TracesData` message."""


class PendingRunRow(TableRow, table=True):
    """A run with blocks that no projection has read yet."""

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
    """Grows with each accepted request. `run.projected` becomes this number."""
    spans: Int64
    """The number of spans in the blocks that are pending."""
    size: Int64
    """The uncompressed size of the blocks that are pending, in bytes."""
    since: datetime
    """When the first of the pending blocks arrived."""
    seen_at: datetime | None = None
    """When the last of them arrived: a sign of life. Null if the run is only projected again."""
    due_at: datetime
    """When to project the run. `infinity` if its projection failed too often."""
    attempts: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """How many projections began and did not commit since the last one that did."""
    attempted_at: datetime | None = None
    """When the last of these began."""
    with_prices: bool = False
    """Whether the projection replaces computed costs by those of the current price list."""
    failure: str | None = None
    """Why the last attempt failed; null if it did not say."""
