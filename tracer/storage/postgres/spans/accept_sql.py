"""The SQL for accepting spans and for marking their runs as pending, for raw cursors.

Each statement takes the project's id as $1. docs/explanation/projection.md explains the conditions
that each relies on.
"""

from __future__ import annotations

QUIET = "interval '100 milliseconds'"
"""A run is due for projection if no span of it has arrived for that long. See also
`LONGEST_WAIT`."""

LONGEST_WAIT = "interval '1 second'"
"""A run is also due if the oldest of its pending spans has waited for that long."""

MOST_ATTEMPTS = 5
"""A run whose projection failed this often is only projected again if spans arrive or a
reprojection is requested."""

FAILED_PAUSE = "interval '1 minute'"
"""If new spans arrive for a run after `MOST_ATTEMPTS` failures, its next attempt begins at the
earliest this long after the last one."""


def later(moment: str, interval: str) -> str:
    """Return a moment plus an interval, as an expression that Postgres regards as immutable.

    The result of `timestamptz + interval` depends on the session's time zone. Citus rejects such an
    expression in `DO UPDATE SET`.
    """
    return f"({moment} AT TIME ZONE 'UTC' + {interval}) AT TIME ZONE 'UTC'"


INSERT_RUNS = """
INSERT INTO run (project_id, root_plan_id, status, recorded_at, revision, source,
    is_agent_work, input_tokens, output_tokens, cost_usd, tool_calls, failed_calls)
SELECT $1, root_plan_id, 'unknown', coalesce($2, statement_timestamp()), 1, 'spans', false,
    0, 0, 0, 0, 0
FROM unnest($3::uuid[]) AS incoming (root_plan_id)
ORDER BY root_plan_id
ON CONFLICT (project_id, root_plan_id) DO NOTHING"""

LOCK_RUNS = """
SELECT root_plan_id, source, projected, next_projection_at,
    span_bytes + coalesce((SELECT size FROM pending_run WHERE pending_run.project_id = $1
        AND pending_run.root_plan_id = run.root_plan_id
        AND pending_run.root_plan_id = ANY($2::uuid[])), 0)
FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND deleted_at IS NULL
ORDER BY root_plan_id FOR NO KEY UPDATE"""
"""Lock the runs $2 that are not deleted. Citus locks rows of one shard only, so the subquery must
name the runs too."""

INSERT_BLOCKS = """
INSERT INTO otel_block (project_id, root_plan_id, key, spans, size, recorded_at, body)
SELECT $1, root_plan_id, key, spans, size, coalesce($2, statement_timestamp()), body
FROM unnest($3::uuid[], $4::bytea[], $5::integer[], $6::bigint[], $7::bytea[])
    AS incoming (root_plan_id, key, spans, size, body)
ORDER BY root_plan_id, key
ON CONFLICT (root_plan_id, key, project_id) DO NOTHING
RETURNING root_plan_id, spans, size"""
"""Store blocks in locked runs, and return those that were not stored yet."""

FIND_BLOCKS = """
SELECT root_plan_id, key FROM otel_block
WHERE project_id = $1 AND root_plan_id = ANY($3::uuid[]) AND key = ANY($2::bytea[])"""
"""Return which of the blocks with the keys $2 are stored in the runs $3."""

ADD_PENDING = f"""
INSERT INTO pending_run AS stored (project_id, root_plan_id, arrived, spans, size, since, seen_at,
    due_at)
SELECT $1, incoming.root_plan_id, incoming.projected + 1, incoming.spans, incoming.size, now, now,
    greatest(now + {QUIET}, incoming.not_before)
FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
    AS incoming (root_plan_id, projected, spans, size, not_before),
    coalesce($2::timestamptz, statement_timestamp()) AS now
ORDER BY incoming.root_plan_id
ON CONFLICT (root_plan_id, project_id) DO UPDATE
SET arrived = stored.arrived + 1, spans = stored.spans + excluded.spans,
    size = stored.size + excluded.size, seen_at = excluded.seen_at,
    due_at = CASE
        WHEN stored.due_at = 'infinity'
        THEN greatest(excluded.due_at, {later("stored.attempted_at", FAILED_PAUSE)})
        WHEN stored.attempts > 0 THEN stored.due_at
        ELSE greatest(
            least({later("excluded.since", QUIET)}, {later("stored.since", LONGEST_WAIT)}),
            {later("excluded.due_at", f"-{QUIET}")})
    END,
    attempts = least(stored.attempts, {MOST_ATTEMPTS - 1})"""
"""Mark locked runs with new blocks as pending, at the time $2 (null: now)."""

GROW_RUNS = """
UPDATE run SET span_bytes = span_bytes + incoming.size
FROM unnest($2::uuid[], $3::bigint[]) AS incoming (root_plan_id, size)
WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
    AND run.root_plan_id = ANY($2::uuid[])"""
"""Add the sizes of new blocks to runs that arrived as events. Such runs are never projected."""
