"""The SQL of leases, for raw cursors.

Each statement takes the current time as a parameter; null means the time of the database. A lease
is valid while `seen_at + length` is in the future. Writers lock runs before leases. The reaper
locks leases before runs, but it skips locked rows, so it cannot be part of a deadlock.
"""

from __future__ import annotations

from tracer.records.leases import MAX_DELAY
from tracer.records.record_classes import RECORDS, Kind
from tracer.storage.postgres.schema.lease_tables import is_unfinished, whose
from tracer.storage.postgres.schema.record_tables import ALWAYS, TABLES

NOW = "SELECT coalesce($1::timestamptz, statement_timestamp())"

RECHECK = "interval '1 hour'"
"""The time between two checks of an expired lease. If its last run was deleted meanwhile, the lease
is deleted."""

# The moment of an event, by the database's clock, is when it was recorded plus the least `lag`.
_SEEN = f"""greatest(stored.seen_at, excluded.seen_at
        - least(coalesce(excluded.lag - least(stored.lag, excluded.lag), '0'),
            interval '{MAX_DELAY.days} days'))"""

# A lease that had expired is due at once, and so is a new one: an import may have brought a run in
# which its recorder is dead. A living one is rarely due, and most updates are HOT: they leave the
# index of `due_at` alone.
RENEW = f"""
WITH moment AS MATERIALIZED (SELECT coalesce($2::timestamptz, statement_timestamp()) AS now)
INSERT INTO recorder_lease AS stored (project_id, recorder_id, seen_at, length, lag, due_at)
SELECT $1, incoming.recorder_id, moment.now, incoming.length, moment.now - incoming.at, moment.now
FROM moment, unnest($3::uuid[], $4::timestamptz[], $5::interval[])
    AS incoming (recorder_id, at, length)
ORDER BY incoming.recorder_id
ON CONFLICT (recorder_id, project_id) DO UPDATE SET
    seen_at = {_SEEN},
    length = excluded.length,
    lag = least(stored.lag, excluded.lag),
    due_at = CASE WHEN stored.seen_at + stored.length <= excluded.seen_at
        THEN least(stored.due_at, excluded.seen_at)
        WHEN stored.due_at > excluded.seen_at
            AND stored.due_at < excluded.seen_at + excluded.length / 2
            OR stored.due_at > {_SEEN} + excluded.length
        THEN {_SEEN} + excluded.length ELSE stored.due_at END
RETURNING recorder_id, seen_at, length"""
"""Renew the leases of the recorders $3 in the project $1, or create them, for the lengths $5.

$4 are the times of the recorders' latest events, by the recorders' clocks; null for a heartbeat
without an event. If a lease becomes shorter, its `due_at` becomes earlier.
"""

NOTE_RUNS = """
INSERT INTO recorder_run (project_id, recorder_id, root_plan_id)
SELECT run.project_id, incoming.recorder_id, run.root_plan_id
FROM unnest($2::uuid[], $3::uuid[]) AS incoming (recorder_id, root_plan_id)
JOIN run ON run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
WHERE run.deleted_at IS NULL AND run.root_plan_id = ANY($3::uuid[])
ORDER BY incoming.recorder_id, incoming.root_plan_id
ON CONFLICT (recorder_id, root_plan_id, project_id) DO NOTHING"""
"""Store that the recorders $2 wrote to the locked runs $3."""

LEASES_OF_RUN = """
SELECT recorder_id, seen_at, length FROM recorder_lease
WHERE project_id = $1 AND recorder_id = ANY(ARRAY(
    SELECT recorder_id FROM recorder_run WHERE root_plan_id = $2 AND project_id = $1))
ORDER BY recorder_id"""

COUNT_LEASES = """
SELECT count(*) FILTER (WHERE seen_at + length > statement_timestamp()),
    count(*) FILTER (WHERE seen_at + length <= statement_timestamp())
FROM recorder_lease"""

# --- The reaper ----------------------------------------------------------------------------------

_LIVES = "seen_at + length > moment.now"

TAKE_LEASES = f"""
WITH moment AS MATERIALIZED ({NOW} AS now)
SELECT project_id, recorder_id, CASE WHEN NOT {_LIVES} THEN seen_at + length END,
    CASE WHEN {_LIVES} THEN seen_at + length ELSE moment.now + {RECHECK} END
FROM moment, recorder_lease AS lease
WHERE due_at <= moment.now
    AND ({_LIVES} OR greatest(seen_at, $2::timestamptz) + length <= moment.now)
ORDER BY due_at LIMIT $3 FOR UPDATE OF lease SKIP LOCKED"""
"""Lock at most $3 leases that are due. Return when each expired (null if it is valid), and when it
is due next.

No lease expires before its full length has passed after the time $2. Before that time the reaper
was not running.
"""

_LEASES = """unnest($1::integer[], $2::uuid[], $3::timestamptz[])
    AS lease (project_id, recorder_id, abandoned_at)"""

FIND_RUNS = f"""
SELECT part.project_id, part.recorder_id, part.root_plan_id, lease.abandoned_at
FROM {_LEASES}
JOIN recorder_run AS part
    ON part.recorder_id = lease.recorder_id AND part.project_id = lease.project_id
JOIN run ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
WHERE part.abandoned_at IS DISTINCT FROM lease.abandoned_at AND run.deleted_at IS NULL
LIMIT $4"""
"""Find at most $4 runs of recorders with the given leases whose stored `abandoned_at` is
outdated."""

TAKE_RUNS = f"{FIND_RUNS} FOR NO KEY UPDATE OF run SKIP LOCKED"
"""Find the same runs as `FIND_RUNS`, and lock them. Runs that are locked are skipped."""

FIND_LEFT = f"""
SELECT DISTINCT part.project_id, part.recorder_id,
    part.abandoned_at IS DISTINCT FROM lease.abandoned_at
FROM {_LEASES}
JOIN recorder_run AS part
    ON part.recorder_id = lease.recorder_id AND part.project_id = lease.project_id"""
"""Return the leases whose recorders still have runs. The third column is true if `FIND_RUNS` finds
some of these runs, and false if it does not find some. A lease can have both rows."""

_INCOMING = """unnest($1::integer[], $2::uuid[], $3::uuid[], $4::timestamptz[])
    AS incoming (project_id, recorder_id, root_plan_id, abandoned_at)"""


def raising(kind: Kind, incoming: str, revision: str) -> str:
    """Return the statement that sets a new revision for the unfinished records of recorders.

    Args:
        kind: The kind of record.
        incoming: The SQL of rows named `incoming`, which contain the recorders and their runs.
        revision: The new revision, as SQL with columns of `run`.
    """
    return f"""
    UPDATE {TABLES[kind]} AS stored SET revision = {revision}
    FROM {incoming}
    JOIN run ON run.project_id = incoming.project_id AND run.root_plan_id = incoming.root_plan_id
    WHERE stored.project_id = incoming.project_id AND stored.root_plan_id = incoming.root_plan_id
        AND stored.{ALWAYS} AND {is_unfinished("stored")}
        AND {whose("stored", "run")} = incoming.recorder_id
    """


def _raising(kind: Kind) -> str:
    returned = "RETURNING stored.project_id, incoming.recorder_id, stored.root_plan_id"
    return raising(kind, _INCOMING, "run.revision + 1") + returned


RAISE = {kind: _raising(kind) for kind in RECORDS}
"""Raise the revisions of unfinished records. Execute these before `RAISE_RUNS`, which raises the
revisions of the runs."""

LOCK_RUN = """
SELECT root_plan_id FROM run
WHERE project_id = $1 AND root_plan_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE SKIP LOCKED"""

RAISE_RUNS = """
UPDATE run SET revision = run.revision + 1
FROM unnest($1::integer[], $2::uuid[]) AS incoming (project_id, root_plan_id)
WHERE run.project_id = incoming.project_id AND run.root_plan_id = incoming.root_plan_id"""

_OF_INCOMING = """part.recorder_id = incoming.recorder_id
    AND part.root_plan_id = incoming.root_plan_id AND part.project_id = incoming.project_id"""

SET_ABANDONED = f"""
UPDATE recorder_run AS part SET abandoned_at = incoming.abandoned_at FROM {_INCOMING}
WHERE {_OF_INCOMING}"""

FORGET_RUNS = f"""
DELETE FROM recorder_run AS part
USING unnest($1::integer[], $2::uuid[], $3::uuid[])
    AS incoming (project_id, recorder_id, root_plan_id)
WHERE {_OF_INCOMING}"""
"""Delete the rows of `recorder_run` whose recorders are dead and left no unfinished records in the
run."""

SET_DUE = """
UPDATE recorder_lease AS lease SET due_at = incoming.due_at
FROM unnest($1::integer[], $2::uuid[], $3::timestamptz[])
    AS incoming (project_id, recorder_id, due_at)
WHERE lease.recorder_id = incoming.recorder_id AND lease.project_id = incoming.project_id"""

FORGET_LEASES = """
DELETE FROM recorder_lease AS lease
USING unnest($1::integer[], $2::uuid[]) AS incoming (project_id, recorder_id)
WHERE lease.recorder_id = incoming.recorder_id AND lease.project_id = incoming.project_id"""
