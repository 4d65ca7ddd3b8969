"""The views of stored spans: the blocks of each run, and which runs lack spans that arrived."""

from __future__ import annotations

from tracer.storage.tables import METADATA
from tracer.storage.view_columns import View, place


def _comment(table: str, column: str) -> str:
    """Return the comment of a column."""
    comment = METADATA.tables[table].columns[column].comment
    assert comment is not None, f"{table}.{column} has no docstring"
    return comment


def _of_runs(table: str, alias: str) -> str:
    """Return the rows of a table that belong to runs that are not deleted."""
    return (
        f"FROM {table} AS {alias} JOIN run ON run.project_id = {alias}.project_id"
        f" AND run.root_plan_id = {alias}.root_plan_id AND run.deleted_at IS NULL"
    )


_BLOCKS = View(
    "blocks",
    "Blocks: the OpenTelemetry spans of one run that arrived together, compressed. "
    "`GET /api/runs/{id}/spans` returns single spans.",
    (
        *place("block"),
        ("spans", "block.spans", _comment("otel_block", "spans")),
        ("bytes", "block.size", "Their uncompressed size in bytes."),
        (
            "stored_bytes",
            "octet_length(block.body)::bigint",
            "Their compressed size in bytes.",
        ),
        (
            "arrived_at",
            "block.recorded_at",
            "When the server stored the first of them.",
        ),
    ),
    _of_runs("otel_block", "block"),
)

_BEHIND = View(
    "behind",
    "Runs with spans that are not projected yet: their records lack what these spans say.",
    (
        *place("pending"),
        ("spans", "pending.spans", _comment("pending_run", "spans")),
        ("bytes", "pending.size", _comment("pending_run", "size")),
        ("since", "pending.since", _comment("pending_run", "since")),
        ("due_at", "pending.due_at", _comment("pending_run", "due_at")),
        ("attempts", "pending.attempts", _comment("pending_run", "attempts")),
        (
            "error",
            "coalesce(run.projection_error, pending.failure)",
            "Why the last projection failed; null if none did, or if it did not say.",
        ),
    ),
    _of_runs("pending_run", "pending"),
)

SPAN_VIEWS = (_BLOCKS, _BEHIND)
