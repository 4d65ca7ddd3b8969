"""The SQL that sums up hours, of the project `project_id` and in one snapshot.

Moments stay in the database, or go through Python as texts: so those of any year will do.
"""

from __future__ import annotations

from tracer.storage.burial_statements import IN_NO_GRAVE
from tracer.storage.call_parts import (
    BY_THE_HOUR,
    COUNTED,
    PIECES,
    calls_within,
    last,
    parts,
    summed_parts,
)
from tracer.storage.changed_hours import MARKED_HOURS, SETTLED_HOURS, day_of, hour_of
from tracer.storage.tables import START

MARKED_AT_ONCE = 24
"""How many hours with marks are summed up in a transaction; of others, those of a day."""

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
    SELECT until AS since, least({day_of("until")} + interval '1 day', {_SETTLED}) AS until
    FROM summed WHERE until < {_SETTLED}
),
marked AS (
    SELECT DISTINCT hour AS since, hour + interval '1 hour' AS until FROM summed, changed_hour
    WHERE {_OF_PROJECT} AND hour < summed.until AND hour >= coalesce(summed.since, '-infinity')
    ORDER BY since DESC LIMIT {MARKED_AT_ONCE}
),
earlier AS (
    SELECT coalesce({day_of(_CALL_BEFORE)}, '-infinity') AS since, since AS until
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


_FIGURES = ", ".join(
    (
        *COUNTED,
        *("tool_type", "latest_at", "least_ms", "greatest_ms", "opened_since"),
        *("slowest_id", "failed_at", "failed_id"),
    )
)


def _keeping(hours: int, summed: str) -> str:
    """Return the statement that keeps what was summed up, as of `at` and `name`."""
    return f"""
INSERT INTO summed_calls (project_id, hours, since, number, tool_name, {_FIGURES}, buckets,
    bucket_counts)
SELECT %(project_id)s, {hours}, at, row_number() OVER (PARTITION BY at ORDER BY name), name,
    {_FIGURES}, coalesce(buckets, '{{}}'), coalesce(bucket_counts, '{{}}')
FROM ({summed}) AS found"""


_CALLS = calls_within(
    PIECES,
    f"{_OF_PROJECT} AND {IN_NO_GRAVE} AND name IS NOT NULL",
    f"plan.{_OF_PROJECT}",
    BY_THE_HOUR,
)

# Days that the stretches touch and that are whole; of those without calls there is nothing to keep.
_DAYS = f"""(
    SELECT DISTINCT {day_of("each.since")} AS since
    FROM {PIECES}, summed_range AS whole, summed_calls AS each
    WHERE whole.{_OF_PROJECT} AND each.{_OF_PROJECT} AND hours = 1
        AND each.since >= greatest({day_of("piece.since")}, whole.since)
        AND each.since < {day_of("piece.until - interval '1 microsecond'")} + interval '1 day'
        AND {day_of("each.since")} >= coalesce(whole.since, '-infinity')
        AND {day_of("each.since")} + interval '1 day' <= whole.until
) AS day"""

_SUMMED_HOURS = f"""
SELECT day.since AS at, tool_name AS name, summed_calls.*
FROM {_DAYS} JOIN summed_calls ON {_OF_PROJECT} AND hours = 1
    AND summed_calls.since >= day.since AND summed_calls.since < day.since + interval '1 day'"""

SUM_UP = (
    f"""
DELETE FROM summed_calls AS summed USING {PIECES}
WHERE {_OF_PROJECT} AND hours = 1 AND summed.since >= piece.since AND summed.since < piece.until""",
    f"""
DELETE FROM summed_calls AS summed USING {PIECES}
WHERE {_OF_PROJECT} AND hours = 24 AND summed.since > piece.since - interval '1 day'
    AND summed.since < piece.until""",
    _keeping(1, parts(_CALLS, ("at", "name"), last())),
    f"""
DELETE FROM changed_hour USING {PIECES}
WHERE {_OF_PROJECT} AND hour >= piece.since AND hour < piece.until""",
    f"""
UPDATE summed_range AS summed SET summed_at = statement_timestamp(),
    since = CASE WHEN summed.since > piece.since AND piece.since = '-infinity' THEN NULL
        WHEN summed.since > piece.since THEN piece.since ELSE summed.since END,
    until = greatest(summed.until, piece.until)
FROM (SELECT min(since) AS since, max(until) AS until FROM {PIECES}) AS piece
WHERE {_OF_PROJECT}""",
    _keeping(
        24,
        summed_parts(
            _SUMMED_HOURS,
            ("at", "name"),
            f", {last('slowest_id', 'greatest_ms', 'failed_id')}",
        ),
    ),
)
"""Sums up stretches, one statement after the other, and takes away the marks that are seen."""
