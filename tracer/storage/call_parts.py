"""The SQL that says how calls went, so that it can be put together with how others went.

Counts add up, and so do histograms of durations.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracer.storage.changed_hours import hour_of
from tracer.storage.duration_buckets import bucket_of
from tracer.storage.tables import IS_FAILED, IS_OPEN, START, start_of

DURATION = "(extract(epoch FROM finished_at - started_at) * 1000)::float8"
"""How long a call took, in milliseconds; null where it has not ended."""

FAILED_AT = f"coalesce(finished_at, {START})"
"""By which of two failed calls is the later."""

PIECES = """
unnest(%(sinces)s::text[]::timestamptz[], %(untils)s::text[]::timestamptz[])
    AS piece (since, until)"""
"""Stretches of time: few, or hours."""

COUNTS = f"""
    count(*) AS calls,
    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE {IS_FAILED}) AS failures,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE {IS_OPEN} AND abandoned_at IS NULL) AS running"""
"""How many calls went which way."""

COUNTED = ("calls", "succeeded", "failures", "cancelled", "abandoned", "running", "sub_plans")
"""What adds up of calls, beside their histogram."""

SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
"""The percentiles that are told, by their names."""

PERCENTILES = f"""
    percentile_disc(ARRAY{[*SHARES.values()]}) WITHIN GROUP (ORDER BY duration_ms) AS percentiles"""


def last(
    slowest: str = "tool_call_id", took: str = "duration_ms", failed: str = "tool_call_id"
) -> str:
    """Return which calls came last, and when the first sub-plan started.

    Args:
        slowest: What is known of the slowest calls: their ids,
        took: and their durations.
        failed: What is known of the failed calls that ended last: their ids.
    """
    return f"""
    min(opened_since) AS opened_since,
    (array_agg({slowest} ORDER BY {took} DESC, {slowest} DESC)
        FILTER (WHERE {took} IS NOT NULL))[1] AS slowest_id,
    max(failed_at) AS failed_at,
    (array_agg({failed} ORDER BY failed_at DESC, {failed} DESC)
        FILTER (WHERE failed_at IS NOT NULL))[1] AS failed_id"""


def calls_within(pieces: str, where: str, opened: str, at: str) -> str:
    """Return a query for the calls of some stretches of time, each with what it opened.

    Each stretch goes along the index by itself. Each call's sub-plans are looked up, since they may
    have started at any time.

    Args:
        pieces: The stretches, as `piece (since, until)`.
        where: The condition for calls.
        opened: The condition for sub-plans, of the row `plan`.
        at: What `at` is, of the call's `moment`.
    """
    return f"""
    SELECT call.*, {at} AS at, {bucket_of("duration_ms")} AS bucket, opened.*
    FROM {pieces}, LATERAL (
        SELECT root_plan_id, tool_call_id, name COLLATE "C" AS name, tool_type, status,
            abandoned_at, {START} AS moment, {DURATION} AS duration_ms,
            CASE WHEN {IS_FAILED} THEN {FAILED_AT} END AS failed_at
        FROM act_tool_info
        WHERE {where} AND {START} >= piece.since AND {START} < piece.until OFFSET 0
    ) AS call, LATERAL (
        SELECT count(*) AS sub_plans, min({start_of("plan")}) AS opened_since
        FROM plan_execution_record AS plan
        WHERE plan.tool_call_id = call.tool_call_id AND plan.root_plan_id = call.root_plan_id
            AND {opened}
    ) AS opened"""


BY_THE_HOUR = hour_of("moment")
"""What makes `at` of calls the hour that they started in."""


def parts(calls: str, keys: Sequence[str], also: str, grouping: str | None = None) -> str:
    """Return a query for how calls went, by some of their columns.

    Args:
        calls: Which, as `calls_within` returns them.
        keys: The columns.
        also: What to say of them besides counts and durations.
        grouping: How they are grouped, if not just by the columns.
    """
    by = ", ".join(keys)
    return f"""
    WITH call AS MATERIALIZED ({calls})
    SELECT * FROM (
        SELECT {by}, max(tool_type COLLATE "C") AS tool_type, max(moment) AS latest_at,
            coalesce(sum(sub_plans), 0)::bigint AS sub_plans,
            min(duration_ms) AS least_ms, max(duration_ms) AS greatest_ms, {COUNTS}, {also}
        FROM call GROUP BY {grouping or by}
    ) AS figures LEFT JOIN (
        SELECT {by}, array_agg(bucket ORDER BY bucket) AS buckets,
            array_agg(filled ORDER BY bucket) AS bucket_counts
        FROM (
            SELECT {by}, bucket, count(*) AS filled FROM call WHERE bucket IS NOT NULL
            GROUP BY {by}, bucket
        ) AS each GROUP BY {by}
    ) AS histogram USING ({by})"""


def summed_parts(rows: str, keys: Sequence[str], also: str = "") -> str:
    """Return a query for how the calls of summed times went, as `parts` does.

    Args:
        rows: A query for rows of `summed_calls` with these columns.
        keys: The columns that they are grouped by.
        also: What to say of them besides, beginning with a comma.
    """
    by = ", ".join(keys)
    sums = ", ".join(f"sum({column})::bigint AS {column}" for column in COUNTED)
    return f"""
    WITH summed AS MATERIALIZED ({rows})
    SELECT * FROM (
        SELECT {by}, max(tool_type COLLATE "C") AS tool_type, max(latest_at) AS latest_at,
            min(least_ms) AS least_ms, max(greatest_ms) AS greatest_ms, {sums}{also}
        FROM summed GROUP BY {by}
    ) AS figures LEFT JOIN (
        SELECT {by}, array_agg(bucket ORDER BY bucket) AS buckets,
            array_agg(filled ORDER BY bucket) AS bucket_counts
        FROM (
            SELECT {by}, bucket, sum(filled)::bigint AS filled
            FROM summed, unnest(buckets, bucket_counts) AS each (bucket, filled)
            GROUP BY {by}, bucket
        ) AS each GROUP BY {by}
    ) AS histogram USING ({by})"""
