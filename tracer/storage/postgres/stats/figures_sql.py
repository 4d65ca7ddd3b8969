"""The SQL that counts tool calls, and that adds up earlier counts.

Counts and histograms of durations can be summed. So figures of single calls, of runs (`run_group`)
and of hours (`tool_hour`) can be added up. The result is the same as if every call were counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracer.storage.postgres.schema.lease_tables import abandoned_at
from tracer.storage.postgres.schema.record_tables import IS_FAILED, IS_OPEN, START
from tracer.storage.postgres.stats.duration_buckets import bucket_of

DURATION = "(extract(epoch FROM finished_at - started_at) * 1000)::float8"
"""The duration of a call in milliseconds; null if it has not ended."""

_OWN_TIME = """(
    extract(epoch FROM call.finished_at - call.started_at) - coalesce((
        SELECT sum(extract(epoch FROM upper(part) - lower(part)))
        FROM unnest(
            opened.times * tstzmultirange(tstzrange(call.started_at, call.finished_at))
        ) AS part
    ), 0)
) * 1000"""
"""The duration of a call in milliseconds, without the times in which its sub-plans ran. Sub-plans
may run at the same time, and longer than the call."""

FAILED_AT = f"coalesce(finished_at, {START})"
"""The time of a failed call's failure: its end, or its start if it has no end."""

COUNTS = f"""
    count(*) AS calls,
    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE {IS_FAILED}) AS failed,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NULL) AS running,
    coalesce(sum(sub_plans), 0)::bigint AS sub_plans"""
"""The number of calls by outcome, and of the sub-plans that they opened."""

COUNTED = ("calls", "succeeded", "failed", "cancelled", "abandoned", "running", "sub_plans")
"""The columns of `COUNTS`. They are combined by their sums."""

_GREATEST = ("tool_type", "latest_at", "greatest_ms", "failed_at")
"""The columns that are combined by their greatest values."""

FIGURES = (
    *COUNTED,
    *_GREATEST,
    "buckets",
    "bucket_counts",
    "own_buckets",
    "own_bucket_counts",
)
"""The columns of `run_group` and `tool_hour` whose values can be combined."""

SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
"""The percentiles, as fractions, by their names."""

OWN_SHARES = {f"own_{name}": share for name, share in SHARES.items()}
"""The percentiles of own times, as fractions, by their names."""


def _sums(condition: str = "true") -> str:
    """Return the SELECT list that combines the counts of the rows that meet a condition."""
    filtered = f"FILTER (WHERE {condition})"
    return ", ".join(
        (
            *(f"(sum({column}) {filtered})::bigint AS {column}" for column in COUNTED),
            f'max(tool_type COLLATE "C") {filtered} AS tool_type',
            *(f"max({column}) {filtered} AS {column}" for column in _GREATEST[1:]),
        )
    )


def calls_of(source: str, at: str = "{}") -> str:
    """Return a query for calls, each with the number of its sub-plans and its own time.

    Args:
        source: The end of a query for rows of `act_tool_info`, from `FROM` on.
        at: The SQL expression of the column `at`, in which `{}` is the time when the call started.
    """
    # Grouped by run: Citus does not push down a lateral aggregate without its shard key.
    return f"""
    SELECT call.*, coalesce(opened.sub_plans, 0) AS sub_plans,
        CASE WHEN opened.times IS NOT NULL AND call.duration_ms > 0 THEN ({_OWN_TIME})::float8
            ELSE call.duration_ms END AS own_ms
    FROM (
        SELECT root_plan_id, tool_call_id, name COLLATE "C" AS name, tool_type, status,
            {abandoned_at("act_tool_info")} AS abandoned_at, {START} AS latest_at,
            {at.format(START)} AS at,
            started_at, finished_at, {DURATION} AS duration_ms,
            CASE WHEN {IS_FAILED} THEN {FAILED_AT} END AS failed_at
        {source}
    ) AS call LEFT JOIN LATERAL (
        SELECT root_plan_id, count(*) AS sub_plans,
            range_agg(tstzrange(started_at, finished_at))
                FILTER (WHERE started_at <= coalesce(finished_at, 'infinity')) AS times
        FROM plan_execution_record AS plan
        WHERE plan.tool_call_id = call.tool_call_id AND plan.root_plan_id = call.root_plan_id
            AND plan.project_id = %(project_id)s
        GROUP BY plan.root_plan_id
    ) AS opened ON true"""


def exact_figures(calls: str, key: str) -> str:
    """Return a query for the counts and the exact percentiles of calls, grouped by `key`."""
    return f"""
    SELECT {key}, {COUNTS}, max(tool_type COLLATE "C") AS tool_type, max(latest_at) AS latest_at,
        percentile_disc(ARRAY{[*SHARES.values()]}) WITHIN GROUP (ORDER BY duration_ms)
            AS percentiles,
        percentile_disc(ARRAY{[*SHARES.values()]}) WITHIN GROUP (ORDER BY own_ms)
            AS own_percentiles
    FROM ({calls}) AS call GROUP BY {key}"""


def _in_order(column: str, condition: str) -> str:
    has_ended = f"FILTER (WHERE bucket IS NOT NULL AND {condition})"
    return f"coalesce(array_agg({column} ORDER BY bucket) {has_ended}, '{{}}')"


def _histograms(counts: str) -> str:
    """Return the SQL of two histograms, of durations and of own times, over rows with buckets.

    Args:
        counts: The column that has the number of calls in each bucket.
    """
    return f"""{_in_order("bucket", "NOT is_own")} AS buckets,
        {_in_order(counts, "NOT is_own")} AS bucket_counts,
        {_in_order("bucket", "is_own")} AS own_buckets,
        {_in_order(counts, "is_own")} AS own_bucket_counts"""


_ADDED = ", ".join(
    (
        *COUNTED,
        *_GREATEST,
        "coalesce(buckets, '{}') AS buckets",
        "coalesce(bucket_counts, '{}') AS bucket_counts",
        "CASE WHEN sub_plans > 0 THEN own_buckets END AS own_buckets",
        "CASE WHEN sub_plans > 0 THEN own_bucket_counts END AS own_bucket_counts",
    )
)
"""The SELECT list of `FIGURES`. If no sub-plans were opened, own times equal the durations, and are
not stored."""


def figures(calls: str, keys: Sequence[str]) -> str:
    """Return a query for the `FIGURES` of calls, grouped by some columns."""
    by = ", ".join(keys)
    return f"""
    SELECT {by}, {_ADDED} FROM (
        SELECT {by}, {_sums("NOT is_own")}, {_histograms("calls")}
        FROM (
            SELECT {by}, is_own, bucket, {COUNTS}, max(tool_type COLLATE "C") AS tool_type,
                max(latest_at) AS latest_at, max(duration_ms) AS greatest_ms,
                max(failed_at) AS failed_at
            FROM ({calls}) AS call CROSS JOIN LATERAL (VALUES
                (false, {bucket_of("call.duration_ms")}), (true, {bucket_of("call.own_ms")})
            ) AS counted (is_own, bucket)
            GROUP BY {by}, is_own, bucket
        ) AS by_bucket GROUP BY {by}
    ) AS added"""


def added_up(rows: str, keys: Sequence[str]) -> str:
    """Return a query that adds up the `FIGURES` of `rows`, grouped by the columns `keys`."""
    by = ", ".join(keys)
    return f"""
    WITH part AS MATERIALIZED ({rows})
    SELECT {by}, {_ADDED}
    FROM (SELECT {by}, {_sums()} FROM part GROUP BY {by}) AS sums
    LEFT JOIN (
        SELECT {by}, {_histograms("filled")}
        FROM (
            SELECT {by}, is_own, bucket, sum(filled)::bigint AS filled
            FROM (
                SELECT {by}, false AS is_own, unnest(buckets) AS bucket,
                    unnest(bucket_counts) AS filled
                FROM part
                UNION ALL
                SELECT {by}, true, unnest(coalesce(own_buckets, buckets)),
                    unnest(coalesce(own_bucket_counts, bucket_counts))
                FROM part
            ) AS each GROUP BY {by}, is_own, bucket
        ) AS by_bucket GROUP BY {by}
    ) AS histogram USING ({by})"""
