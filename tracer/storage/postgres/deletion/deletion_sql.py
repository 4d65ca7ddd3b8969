"""The SQL of deletion: which runs are deleted, tombstones, and the purge of their rows.

Every statement takes `project_id`, and most take the affected runs as `runs`: on Citus, runs of one
shard. `now` is the current time, or null for the database's own clock.
"""

from __future__ import annotations

from tracer.records.record_classes import RECORDS, Kind
from tracer.storage.postgres.schema.lease_tables import abandoned_at
from tracer.storage.postgres.schema.record_tables import (
    ALWAYS,
    IS_TOMBSTONE,
    METADATA,
    RUN_NOT_DELETED,
    TABLES,
    is_text,
)

_OF_PROJECT = "project_id = %(project_id)s"
_OF_RUNS = f"{_OF_PROJECT} AND root_plan_id = ANY(%(runs)s)"

# --- Which runs ----------------------------------------------------------------------------------

ANY_RUN = "true"
OF_RUN = "root_plan_id = %(run)s"
OF_SUBJECT = is_text("subject", "subject")

_IS_OPEN = "finished_at IS NULL AND status < 'cancelled'"

# An end in the future comes from a wrong clock.
_END = f"""CASE WHEN finished_at <= %(now)s THEN finished_at
    ELSE coalesce({abandoned_at("run")}, recorded_at) END"""

# A run with pending spans has not ended. If its projection failed for good, its records decide:
# otherwise it would never be deleted.
_LIVES = f"""EXISTS (
    SELECT FROM pending_run AS pending
    WHERE pending.root_plan_id = run.root_plan_id AND pending.project_id = run.project_id
        AND pending.due_at < 'infinity'
) OR {_IS_OPEN} AND EXISTS (
    SELECT FROM recorder_run AS part
    WHERE part.root_plan_id = run.root_plan_id AND part.project_id = run.project_id
        AND part.abandoned_at IS NULL)"""

TOO_OLD = f"recorded_at < %(before)s AND {_END} < %(before)s AND NOT ({_LIVES})"
"""The condition for runs that were stored and ended before the time `before`."""

TOO_MANY = f"(recorded_at, root_plan_id) <= (%(last_at)s, %(last)s) AND NOT ({_LIVES})"
"""The condition for runs in excess of the number that a project keeps. `LAST_KEPT` finds `last_at`
and `last`."""

LAST_KEPT = f"""
SELECT recorded_at, root_plan_id FROM run WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED}
ORDER BY recorded_at DESC, root_plan_id DESC LIMIT 1 OFFSET %(keep_runs)s"""
"""Finds the newest run in excess of `keep_runs`."""


def count_runs(which: str) -> str:
    """Return the query that counts the runs for which the condition `which` holds."""
    return f"SELECT count(*) FROM run WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {which}"


def find_runs(which: str) -> str:
    """Return the query for the next `most` runs after (`after_at`, `after`), oldest first.

    The query locks nothing, so any number of pruners can find the same runs.

    Args:
        which: The condition that the runs meet.
    """
    return f"""
    SELECT recorded_at, root_plan_id FROM run
    WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {which}
        AND (recorded_at, root_plan_id) > (%(after_at)s, %(after)s)
    ORDER BY recorded_at, root_plan_id LIMIT %(most)s"""


FIND_RUNS_OF_SUBJECT = f"""
SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {OF_SUBJECT}
LIMIT %(most)s"""

FIND_TOMBSTONES = f"""
SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND {IS_TOMBSTONE} ORDER BY root_plan_id"""
"""Finds the deleted runs that may still have rows."""

FIND_TOMBSTONES_OF_SUBJECT = f"""
SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND {IS_TOMBSTONE} AND {OF_SUBJECT}"""

FIND_PENDING_RUNS = f"""
SELECT root_plan_id FROM pending_run WHERE {_OF_PROJECT} AND since <= %(now)s
ORDER BY root_plan_id"""
"""Finds the runs whose records lack spans that arrived by `now`."""

# --- Act 1: the tombstone ------------------------------------------------------------------------

WAIT = ""
SKIP_LOCKED = "SKIP LOCKED"


def lock_runs(locking: str) -> str:
    """Return the statement that locks the runs that are not deleted, in the order of their ids.

    It returns their ids and sessions.

    Args:
        locking: `WAIT` for other transactions that have locked a run, or `SKIP_LOCKED`.
    """
    return f"""
    SELECT root_plan_id, session_id FROM run WHERE {_OF_RUNS} AND {RUN_NOT_DELETED}
    ORDER BY root_plan_id FOR NO KEY UPDATE {locking}"""


def soft_delete(which: str) -> str:
    """Return the statement that makes locked runs tombstones, and returns their ids.

    The subject remains until the rows are purged, so that a repeated deletion of the subject finds
    the run.

    Args:
        which: The condition for deleting a run, checked again. An event may have changed the run
            before it was locked, and only a statement after the lock sees the change.
    """
    return f"""
    UPDATE run SET deleted_at = coalesce(%(now)s, statement_timestamp()), revision = revision + 1,
    status = 'unknown', reason = NULL, started_at = NULL, finished_at = NULL, recorder_id = NULL,
    title = NULL, agent_name = NULL, session_id = NULL, tags = NULL, masked = NULL,
    traceparent = NULL, cancel_requested_at = NULL, run_metadata = NULL,
    service_name = NULL, service_version = NULL, deployment_environment = NULL, input_tokens = 0,
    output_tokens = 0, cost_usd = 0, unpriced_calls = 0, unread_spans = 0, tool_calls = 0,
    failed_calls = 0, projected = 0, projection_version = 0, projection_error = NULL,
    next_projection_at = NULL, span_bytes = 0, settle_at = NULL
    WHERE {_OF_RUNS} AND {which} RETURNING root_plan_id"""


FORGET_WORK = tuple(
    f"DELETE FROM {table} WHERE {_OF_RUNS}" for table in ("recorder_run", "pending_run")
)
"""Make the reaper and the projectors skip deleted runs."""

DELETE_SESSIONS = f"DELETE FROM otel_session WHERE {_OF_RUNS} RETURNING session_run_id"
"""Removes the links from deleted runs to the sessions that their log records name. Returns the runs
that store the log records of these sessions."""

FIND_NAMED_SESSIONS = f"""
SELECT DISTINCT session_run_id FROM otel_session
WHERE {_OF_PROJECT} AND session_run_id = ANY(%(sessions)s)"""
"""Finds which of `sessions` are still named by a run. The others can be deleted.

Each session is identified by the run that stores its log records.
"""

# Comparing names can use the index behind row-level security. Names have the first 63 bytes.
_OF_SESSIONS = f"""{_OF_PROJECT} AND session = ANY(%(sessions)s)
    AND session::name = ANY(%(sessions)s::text[]::name[])"""

LOCK_STATES = f"""
SELECT session_id FROM session_state WHERE {_OF_SESSIONS} ORDER BY session_id FOR UPDATE"""
"""Locks the states of conversations. If the last two runs of a conversation are deleted at the same
time, the second deletion waits here and then sees that no run is left."""

# A run without a session has its own id as its session.
FIND_SESSIONS_IN_USE = f"""
SELECT session_id FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND session_id = ANY(%(sessions)s)
    AND session_id::name = ANY(%(sessions)s::text[]::name[])
UNION ALL
SELECT root_plan_id::text FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND root_plan_id = ANY(%(named)s)"""
"""Finds which of the conversations `sessions` still have a run.

A run without a session id is a conversation of its own, identified by the run's id. `named`
contains those ids in `sessions` that are UUIDs, and so may be ids of runs.
"""

DELETE_STATES = f"DELETE FROM session_state WHERE {_OF_SESSIONS}"

# --- Act 2: the rows -----------------------------------------------------------------------------

_PURGE_LOCK_KEY = "hashtextextended('purge ' || root_plan_id::text, %(project_id)s)"
_BATCH = "unnest(%(runs)s::uuid[]) AS batch (root_plan_id)"

# Locks of the rows of `run` would make writers of deleted runs wait.
CLAIM = f"SELECT root_plan_id FROM {_BATCH} WHERE pg_try_advisory_xact_lock({_PURGE_LOCK_KEY})"
"""Claims the purge of runs until the end of the transaction; skips runs that are claimed."""

WAIT_FOR_CLAIM = f"SELECT root_plan_id, pg_advisory_xact_lock({_PURGE_LOCK_KEY}) FROM {_BATCH}"
"""Claims the purge of runs in the given order; waits for another process that has claimed one."""

FIND_CLAIMED = f"""
SELECT root_plan_id FROM run WHERE {_OF_RUNS} AND {IS_TOMBSTONE} ORDER BY root_plan_id"""
"""Finds the tombstones among the claimed runs. Only tombstones may be purged."""


def _of_runs(table: str) -> str:
    """Return the condition for a table's rows of some runs, written so that the index is used."""
    return f"{_OF_RUNS} AND {ALWAYS}" if table in TABLES.values() else _OF_RUNS


_BELOW_RUNS = tuple(
    table.name
    for table in reversed(METADATA.sorted_tables)
    if "root_plan_id" in table.columns and table.name != "run"
)

PURGED_TABLES = tuple(table for table in _BELOW_RUNS if table != "run_group")
"""The tables whose rows the purge deletes: every table with rows of runs, except `run_group`.

`tracer.storage.postgres.stats.rollups` deletes the rows of `run_group`, and takes the run out of
the sums in the same transaction. After `UNLINK` has cut circular references, no row refers to a
table that comes earlier in this order.
"""

_RECORD_TABLES = {TABLES[kind] for kind in RECORDS}


def _counted(table: str, delete: str) -> str:
    """Return a statement that deletes rows, and returns the numbers of rows, records and spans."""
    records = "count(*)" if table in _RECORD_TABLES else "0::bigint"
    spans = "spans" if table == "otel_block" else "0"
    return (
        f"WITH deleted AS ({delete} RETURNING {spans} AS spans)"
        f" SELECT count(*), {records}, coalesce(sum(spans), 0)::bigint FROM deleted"
    )


UNLINK = tuple(
    f"UPDATE {TABLES[kind]} SET {changes} WHERE {_of_runs(TABLES[kind])} AND {is_linked}"
    for kind, changes, is_linked in (
        (
            Kind.PLAN,
            # A plan without links must not have started.
            "parent_plan_id = NULL, tool_call_id = NULL, opened_by_step_id = NULL,"
            " started_at = NULL",
            "num_nonnulls(parent_plan_id, tool_call_id, opened_by_step_id) > 0",
        ),
        (Kind.TOOL_CALL, "parent_tool_call_id = NULL", "parent_tool_call_id IS NOT NULL"),
    )
)
"""Cut the references that form circles. Afterwards the rows can be deleted in several transactions
without broken references in between."""

# `ctid = ANY (…)` would be compared one by one if the planner chose another index.
DELETE_ROWS = tuple(
    _counted(
        table,
        f"DELETE FROM {table} WHERE {_OF_RUNS} AND ctid IN ("
        f"SELECT ctid FROM {table} WHERE {_of_runs(table)} LIMIT %(most)s)",
    )
    for table in PURGED_TABLES
)
"""Statements that each delete at most `most` rows of one table. Execute them in this order, after
`UNLINK`."""

# --- Act 3: the end ------------------------------------------------------------------------------

CHECK_REFERENCES = "SET CONSTRAINTS ALL IMMEDIATE"
"""Comes before `FINISH_PURGE`, so that the runs are locked only after the slow checks."""

FINISH_PURGE = f"""
UPDATE run SET swept_at = coalesce(%(now)s, statement_timestamp()), subject = NULL
WHERE {_OF_RUNS} AND {IS_TOMBSTONE}"""

DELETE_OLD_TOMBSTONES = f"""
DELETE FROM run WHERE {_OF_PROJECT} AND root_plan_id = ANY(ARRAY(
    SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND swept_at < %(before)s
    ORDER BY swept_at LIMIT %(most)s))
RETURNING root_plan_id"""

COUNT_REMAINING = " UNION ALL ".join(
    (
        *(f"SELECT count(*) FROM {table} WHERE {_of_runs(table)}" for table in _BELOW_RUNS),
        f"SELECT count(*) FROM run WHERE {_OF_RUNS} AND swept_at IS NULL",
    )
)
"""Counts the remaining rows of the deleted runs `runs` in each table."""

COUNT_REMAINING_OF_SUBJECT = f"""
SELECT count(*) FROM run WHERE {_OF_PROJECT} AND {OF_SUBJECT}
UNION ALL
SELECT count(*) FROM session_state WHERE {_OF_SESSIONS}"""
"""Counts the remaining runs of a subject, and the remaining states of the conversations
`sessions`."""
