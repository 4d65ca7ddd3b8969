"""The SQL that sums up hours, of the project `project_id` and in one snapshot.

Moments stay in the database, or go through Python as texts: so those of any year will do.
"""

from __future__ import annotations

from tracer.storage.burial_statements import IN_NO_GRAVE
from tracer.storage.call_parts import (
    BY_THE_HOUR,
    COUNTED,
    LAST,
    PIECES,
    calls_within,
    parts,
)
from tracer.storage.changed_hours import MARKED_HOURS, SETTLED_HOURS, hour_of
from tracer.storage.tables import START

HOURS_AT_ONCE = 24
"""How many hours are summed up in a transaction."""

_OF_PROJECT = "project_id = %(project_id)s"

OLDEST_TRANSACTION = """
SELECT min(xact_start)::text FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
    AND pid <> pg_backend_pid()"""
"""Says when the oldest transaction began that is still running, as far as may be seen."""

_SETTLED = hour_of(
    "least(coalesce(%(now)s::timestamptz, statement_timestamp())"
    f" - interval '{SETTLED_HOURS} hours',"
    f" %(oldest)s::text::timestamptz - interval '{MARKED_HOURS} hours')"
)

BEGIN = f"""
INSERT INTO summed_range (project_id, since, until, summed_at)
SELECT %(project_id)s, settled, settled, statement_timestamp() FROM {_SETTLED} AS settled
ON CONFLICT (project_id) DO NOTHING"""
"""Begins with no hour, at `now` or at the database's own, after the `oldest` transaction."""

TAKE = f"SELECT FROM summed_range WHERE {_OF_PROJECT} FOR UPDATE SKIP LOCKED"
"""Locks what is summed up of a project; nothing where somebody else does it."""

_CALL_BEFORE = f"""
(SELECT {START} FROM act_tool_info WHERE {_OF_PROJECT} AND {START} < summed.since
    ORDER BY {START} DESC LIMIT 1)"""

NEXT = f"""
WITH summed AS (SELECT since, until FROM summed_range WHERE {_OF_PROJECT}),
settled AS (
    SELECT until AS since, least(until + interval '{HOURS_AT_ONCE} hours', {_SETTLED}) AS until
    FROM summed WHERE until < {_SETTLED}
),
marked AS (
    SELECT DISTINCT hour AS since, hour + interval '1 hour' AS until FROM summed, changed_hour
    WHERE {_OF_PROJECT} AND hour < summed.until AND hour >= coalesce(summed.since, '-infinity')
    ORDER BY since DESC LIMIT {HOURS_AT_ONCE}
),
earlier AS (
    SELECT coalesce({hour_of(_CALL_BEFORE)} - interval '{HOURS_AT_ONCE - 1} hours', '-infinity')
        AS since, since AS until
    FROM summed WHERE since IS NOT NULL
),
found AS (
    SELECT 1 AS turn, * FROM settled UNION ALL
    SELECT 2, * FROM marked UNION ALL
    SELECT 3, * FROM earlier
)
SELECT array_agg(since::text), array_agg(until::text)
FROM found WHERE turn = (SELECT min(turn) FROM found)"""
"""Finds what is next: hours that are settled now, else those with marks, else earlier ones.

Returns the beginnings and ends of stretches, null where nothing is left to do.
"""


def _within(hour: str) -> str:
    return f"{_OF_PROJECT} AND {hour} >= piece.since AND {hour} < piece.until"


FORGET = f"DELETE FROM tool_hour USING {PIECES} WHERE {_within('hour')}"
"""Deletes what was summed up of stretches."""

_FIGURES = ", ".join(COUNTED)
_REST = (
    "tool_type, latest_at, least_ms, greatest_ms, opened_since, slowest_id, failed_at, failed_id"
)
_CALLS = calls_within(
    PIECES,
    f"{_OF_PROJECT} AND {IN_NO_GRAVE} AND name IS NOT NULL",
    f"plan.{_OF_PROJECT}",
    BY_THE_HOUR,
)

SUM_UP = f"""
INSERT INTO tool_hour (project_id, hour, number, tool_name, {_FIGURES}, {_REST},
    buckets, bucket_counts)
SELECT %(project_id)s, at, row_number() OVER (PARTITION BY at ORDER BY name), name,
    {_FIGURES}, {_REST}, coalesce(buckets, '{{}}'), coalesce(bucket_counts, '{{}}')
FROM ({parts(_CALLS, ("at", "name"), LAST)}) AS summed"""
"""Sums up stretches."""

UNMARK = f"DELETE FROM changed_hour USING {PIECES} WHERE {_within('hour')}"
"""Deletes the marks of stretches that the snapshot sees."""

KEEP = f"""
UPDATE summed_range AS summed SET summed_at = statement_timestamp(),
    since = CASE WHEN summed.since > piece.since AND piece.since = '-infinity' THEN NULL
        WHEN summed.since > piece.since THEN piece.since ELSE summed.since END,
    until = greatest(summed.until, piece.until)
FROM (SELECT min(since) AS since, max(until) AS until FROM {PIECES}) AS piece
WHERE {_OF_PROJECT}"""
"""Says that stretches are summed up."""
