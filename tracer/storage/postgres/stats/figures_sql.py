"""The SQL that counts tool calls, and that adds up earlier counts.

Counts add up, and so do histograms of durations: live calls, the groups of runs and the hours of a
project combine to the same figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracer.storage.postgres.schema.lease_tables import abandoned_at
from tracer.storage.postgres.schema.record_tables import IS_FAILED, IS_OPEN, START
from tracer.storage.postgres.stats.duration_buckets import bucket_of

DURATION = "(extract(epoch FROM finished_at - started_at) * 1000)::float8"
"""The duration of a call in milliseconds; null if it has not ended."""

FAILED_AT = f"coalesce(finished_at, {START})"
"""Orders failed calls: the latest is the last."""

COUNTS = f"""
    count(*) AS calls,
    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE {IS_FAILED}) AS failures,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NULL) AS running,
    coalesce(sum(sub_plans), 0)::bigint AS sub_plans"""
"""The number of calls by outcome, and of the sub-plans that they opened."""

COUNTED = ("calls", "succeeded", "failures", "cancelled", "abandoned", "running", "sub_plans")
"""The columns of `COUNTS`, which add up."""

_GREATEST = ("tool_type", "latest_at", "greatest_ms", "failed_at")
"""The columns of which the greatest value is taken."""

FIGURES = (*COUNTED, *_GREATEST, "buckets", "bucket_counts")
"""The columns of figures that can be added up, in `run_group` and `tool_hour`."""

SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
"""The percentiles by their names."""

_SUMS = ", ".join(
    (
        *(f"sum({column})::bigint AS {column}" for column in COUNTED),
        'max(tool_type COLLATE "C") AS tool_type',
        *(f"max({column}) AS {column}" for column in _GREATEST[1:]),
    )
)


def calls_of(source: str, at: str = "{}") -> str:
    """Return a query for calls, each with the number of its sub-plans.

    Args:
        source: The end of a query for rows of `act_tool_info`.
        at: The column `at`; `{}` is the time when the call started.
    """
    # Grouped by run: Citus does not push down a lateral aggregate without its shard key.
    return f"""
    SELECT call.*, coalesce(opened.sub_plans, 0) AS sub_plans
    FROM (
        SELECT root_plan_id, tool_call_id, name COLLATE "C" AS name, tool_type, status,
            {abandoned_at("act_tool_info")} AS abandoned_at, {START} AS latest_at,
            {at.format(START)} AS at,
            {DURATION} AS duration_ms, CASE WHEN {IS_FAILED} THEN {FAILED_AT} END AS failed_at
        {source}
    ) AS call LEFT JOIN LATERAL (
        SELECT root_plan_id, count(*) AS sub_plans FROM plan_execution_record AS plan
        WHERE plan.tool_call_id = call.tool_call_id AND plan.root_plan_id = call.root_plan_id
            AND plan.project_id = %(project_id)s
        GROUP BY plan.root_plan_id
    ) AS opened ON true"""


def exact_figures(calls: str, key: str) -> str:
    """Return a query for the counts and the exact `percentiles` of calls, by a column."""
    return f"""
    SELECT {key}, {COUNTS}, max(tool_type COLLATE "C") AS tool_type, max(latest_at) AS latest_at,
        percentile_disc(ARRAY{[*SHARES.values()]}) WITHIN GROUP (ORDER BY duration_ms)
            AS percentiles
    FROM ({calls}) AS call GROUP BY {key}"""


def _in_order(column: str) -> str:
    has_ended = "FILTER (WHERE bucket IS NOT NULL)"
    return f"coalesce(array_agg({column} ORDER BY bucket) {has_ended}, '{{}}')"


def figures(calls: str, keys: Sequence[str]) -> str:
    """Return a query for the `FIGURES` of calls, grouped by some columns."""
    by = ", ".join(keys)
    return f"""
    SELECT {by}, {_SUMS}, {_in_order("bucket")} AS buckets, {_in_order("calls")} AS bucket_counts
    FROM (
        SELECT {by}, bucket, {COUNTS}, max(tool_type COLLATE "C") AS tool_type,
            max(latest_at) AS latest_at, max(duration_ms) AS greatest_ms,
            max(failed_at) AS failed_at
        FROM (SELECT *, {bucket_of("duration_ms")} AS bucket FROM ({calls}) AS call) AS call
        GROUP BY {by}, bucket
    ) AS by_bucket GROUP BY {by}"""


def added_up(rows: str, keys: Sequence[str]) -> str:
    """Return a query for the `FIGURES` of rows that have them, grouped by some columns."""
    by = ", ".join(keys)
    return f"""
    WITH part AS MATERIALIZED ({rows})
    SELECT {by}, {", ".join(COUNTED)}, {", ".join(_GREATEST)},
        coalesce(buckets, '{{}}') AS buckets, coalesce(bucket_counts, '{{}}') AS bucket_counts
    FROM (SELECT {by}, {_SUMS} FROM part GROUP BY {by}) AS sums
    LEFT JOIN (
        SELECT {by}, array_agg(bucket ORDER BY bucket) AS buckets,
            array_agg(filled ORDER BY bucket) AS bucket_counts
        FROM (
            SELECT {by}, bucket, sum(filled)::bigint AS filled
            FROM (
                SELECT {by}, unnest(buckets) AS bucket, unnest(bucket_counts) AS filled FROM part
            ) AS each GROUP BY {by}, bucket
        ) AS by_bucket GROUP BY {by}
    ) AS histogram USING ({by})"""
