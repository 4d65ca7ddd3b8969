"""The SQL of leases, for raw cursors. Each takes the moment as it is, or null: the database's own.

A lease lives while `seen_at + length` is to come. `due_at` finds those that somebody has to look
after. Who writes has locked its runs before it comes to leases, and a reaper skips what is locked:
so they never wait for each other in a circle.
"""

from __future__ import annotations

from tracer.leases import MOST_LATE
from tracer.records import RECORDS, Kind
from tracer.storage.tables import ALWAYS, TABLES

NOW = "SELECT coalesce($1::timestamptz, statement_timestamp())"

# What an event tells, it tells of its own moment, by its recorder's clock: see `lag`.
_SEEN = f"""greatest(kept.seen_at, excluded.seen_at
        - least(coalesce(excluded.lag - least(kept.lag, excluded.lag), '0'),
            interval '{MOST_LATE.days} days'))"""

_SIGN = f"""
    INSERT INTO recorder_lease AS kept (project_id, recorder_id, seen_at, length, lag, due_at)
    SELECT $1, given.recorder_id, moment.now, given.length, moment.now - given.at,
        moment.now + given.length
    FROM moment, unnest($3::uuid[], $4::timestamptz[], $5::interval[])
        AS given (recorder_id, at, length)
    ORDER BY given.recorder_id
    ON CONFLICT (recorder_id, project_id) DO UPDATE SET
        seen_at = {_SEEN},
        length = excluded.length,
        lag = least(kept.lag, excluded.lag),
        due_at = CASE WHEN kept.due_at > excluded.seen_at THEN {_SEEN} + excluded.length
            ELSE excluded.seen_at END"""

_MOMENT = "moment AS MATERIALIZED (SELECT coalesce($2::timestamptz, statement_timestamp()) AS now)"

RENEW = f"""
WITH {_MOMENT}
{_SIGN}
RETURNING recorder_id, seen_at, length"""
"""Renews the leases of the recorders $3 in the project $1, or makes them, for the lengths $5.

$4 are the moments of the latest events that tell of them; null where they tell it themselves. One
that had run out is due at once, so that what it left open is cleared.
"""

NOTE_SIGNS = f"""
WITH {_MOMENT},
signs AS ({_SIGN}
    RETURNING recorder_id, due_at
)
SELECT recorder_id FROM signs, moment WHERE due_at > now + $6"""
"""Renews as `RENEW` does, and returns the recorders whose leases last for the interval $6 and
longer."""

NOTE_RUNS = """
INSERT INTO recorder_run AS kept (project_id, recorder_id, root_plan_id)
SELECT run.project_id, given.recorder_id, run.root_plan_id
FROM unnest($2::uuid[], $3::uuid[]) AS given (recorder_id, root_plan_id)
JOIN run ON run.project_id = $1 AND run.root_plan_id = given.root_plan_id
WHERE run.deleted_at IS NULL AND run.root_plan_id = ANY($3::uuid[])
ORDER BY given.recorder_id, given.root_plan_id
ON CONFLICT (recorder_id, root_plan_id, project_id) DO UPDATE SET may_be_open = true
WHERE NOT kept.may_be_open"""
"""Notes that the recorders $2 wrote to the runs $3, which are locked."""

LEASES_OF_RUN = """
SELECT recorder_id, seen_at, length FROM recorder_lease
WHERE project_id = $1 AND recorder_id = ANY(ARRAY(
    SELECT recorder_id FROM recorder_run WHERE root_plan_id = $2 AND project_id = $1))
ORDER BY recorder_id"""

COUNT_LEASES = """
SELECT count(*) FILTER (WHERE seen_at + length > statement_timestamp()),
    count(*) FILTER (WHERE seen_at + length <= statement_timestamp())
FROM recorder_lease"""

_LIVES = "lease.seen_at + lease.length > moment.now"
# `$2`: since when somebody has been looking without a break.
_IS_DEAD = "greatest(lease.seen_at, $2::timestamptz) + lease.length <= moment.now"
_LEFT_TO_DO = f"CASE WHEN {_LIVES} THEN part.has_abandoned ELSE part.may_be_open END"
FIND_PARTS = f"""
WITH moment AS MATERIALIZED ({NOW} AS now)
SELECT part.project_id, part.root_plan_id, part.recorder_id,
    CASE WHEN NOT {_LIVES} THEN lease.seen_at + lease.length END
FROM moment, recorder_lease AS lease
JOIN recorder_run AS part
    ON part.recorder_id = lease.recorder_id AND part.project_id = lease.project_id
JOIN run ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
WHERE lease.due_at <= moment.now AND ({_LIVES} OR {_IS_DEAD}) AND {_LEFT_TO_DO}
LIMIT $3"""
"""Finds at most $3 parts of runs that need something, and says when their leases ran out.

Null: it came back, and nothing that it left is abandoned any more.
"""

TAKE_PARTS = f"""{FIND_PARTS}
FOR SHARE OF lease SKIP LOCKED
FOR UPDATE OF part SKIP LOCKED
FOR NO KEY UPDATE OF run SKIP LOCKED"""
"""Does the same, and locks what it finds."""

_PARTS = """unnest($1::integer[], $2::uuid[], $3::uuid[], $4::timestamptz[])
    AS given (project_id, root_plan_id, recorder_id, abandoned_at)"""

# Records of spans may name the recorder that wrote them elsewhere.
_WHOSE = "coalesce(CASE run.source WHEN 'events' THEN kept.recorder_id END, run.root_plan_id)"


def _mark(kind: Kind) -> str:
    return f"""
    UPDATE {TABLES[kind]} AS kept
    SET abandoned_at = given.abandoned_at, revision = run.revision + 1
    FROM {_PARTS}
    JOIN run ON run.project_id = given.project_id AND run.root_plan_id = given.root_plan_id
    WHERE kept.project_id = given.project_id AND kept.root_plan_id = given.root_plan_id
        AND kept.{ALWAYS} AND {_WHOSE} = given.recorder_id
        AND kept.status IN ('pending', 'running')
        AND kept.abandoned_at IS DISTINCT FROM given.abandoned_at
    RETURNING kept.project_id, kept.root_plan_id, given.recorder_id"""


MARK = {kind: _mark(kind) for kind in RECORDS}
"""Marks the open records of taken parts, or clears them. Their runs' revisions grow by 1 next."""

RAISE_RUNS = f"""
UPDATE run SET revision = run.revision + 1, abandoned_at = root.abandoned_at
FROM (SELECT DISTINCT project_id, root_plan_id FROM {_PARTS}) AS given
JOIN {TABLES[Kind.PLAN]} AS root ON root.project_id = given.project_id
    AND root.root_plan_id = given.root_plan_id AND root.plan_id = given.root_plan_id
WHERE run.project_id = given.project_id AND run.root_plan_id = given.root_plan_id"""
"""Raises the revisions of the runs of parts that changed; each shows what its root plan does."""

NOTE_PARTS = """
UPDATE recorder_run AS part
SET may_be_open = given.abandoned_at IS NULL,
    has_abandoned = given.abandoned_at IS NOT NULL AND (part.has_abandoned OR given.is_changed)
FROM unnest($1::integer[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::boolean[])
    AS given (project_id, root_plan_id, recorder_id, abandoned_at, is_changed)
WHERE part.recorder_id = given.recorder_id AND part.root_plan_id = given.root_plan_id
    AND part.project_id = given.project_id"""

FORGET_PARTS = f"""
DELETE FROM recorder_run AS part USING {_PARTS}
WHERE part.recorder_id = given.recorder_id AND part.root_plan_id = given.root_plan_id
    AND part.project_id = given.project_id
    AND NOT part.may_be_open AND NOT part.has_abandoned"""

_PARTS_OF_LEASE = (
    "recorder_run AS part"
    " WHERE part.recorder_id = lease.recorder_id AND part.project_id = lease.project_id"
)

_SETTLE = f"""
WITH moment AS MATERIALIZED ({NOW} AS now),
due AS (
    SELECT lease.project_id, lease.recorder_id,
        CASE WHEN {_LIVES} THEN lease.seen_at + lease.length END AS due_at
    FROM moment, recorder_lease AS lease
    WHERE lease.due_at <= moment.now AND ({_LIVES} OR {_IS_DEAD}){{of_some}}
        AND NOT EXISTS (SELECT FROM {_PARTS_OF_LEASE} AND {_LEFT_TO_DO})
    FOR UPDATE OF lease SKIP LOCKED
)
UPDATE recorder_lease AS lease SET due_at = due.due_at
FROM due WHERE lease.recorder_id = due.recorder_id AND lease.project_id = due.project_id"""

SETTLE = _SETTLE.format(of_some="")
"""Says of due leases with nothing left to do when to look after them again."""

SETTLE_SOME = _SETTLE.format(of_some=" AND lease.recorder_id = ANY($3::uuid[])")
"""The same for some recorders, so that the next parts are found without passing over theirs."""

FORGET_LEASES = f"""
DELETE FROM recorder_lease AS lease USING (
    SELECT lease.project_id, lease.recorder_id FROM recorder_lease AS lease
    WHERE lease.due_at IS NULL AND NOT EXISTS (SELECT FROM {_PARTS_OF_LEASE})
    FOR UPDATE SKIP LOCKED
) AS gone
WHERE lease.recorder_id = gone.recorder_id AND lease.project_id = gone.project_id"""
"""Deletes settled leases that left nothing abandoned."""
