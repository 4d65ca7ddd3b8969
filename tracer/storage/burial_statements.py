"""The SQL that deletes runs: they are buried at once, swept in batches, and closed.

All take `project_id`, and most the runs that they are about as `runs`. `now` is the present.
"""

from __future__ import annotations

from tracer.records import Kind
from tracer.storage.lease_tables import abandoned_at
from tracer.storage.tables import ALWAYS, IS_BURIED, METADATA, TABLES, is_text

_OF_PROJECT = "project_id = %(project_id)s"
_OF_RUNS = f"{_OF_PROJECT} AND root_plan_id = ANY(%(runs)s)"

IN_NO_GRAVE = (
    f"root_plan_id <> ALL(ARRAY(SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND {IS_BURIED}))"
)
"""Whether a record may be shown: found once a query, in an index of what is being deleted."""

NOT_BURIED = (
    f"root_plan_id <> ALL(ARRAY(SELECT root_plan_id FROM run"
    f" WHERE {_OF_PROJECT} AND root_plan_id = %(run)s AND {IS_BURIED}))"
)
"""The same for a record of the run `run`."""

THE_RUN = "root_plan_id = %(run)s AND deleted_at IS NULL"
OF_SUBJECT = is_text("subject", "subject")

_IS_OPEN = "finished_at IS NULL AND status < 'cancelled'"

# An end that is yet to come was told by a wrong clock.
_END = f"""CASE WHEN finished_at <= %(now)s THEN finished_at
    ELSE coalesce({abandoned_at("run")}, recorded_at) END"""

# A run with pending spans has no end yet. If its projection failed for good, its records decide:
# otherwise no project could ever get rid of it.
_LIVES = f"""EXISTS (
    SELECT FROM pending_run AS pending
    WHERE pending.root_plan_id = run.root_plan_id AND pending.project_id = run.project_id
        AND pending.due_at < 'infinity'
) OR {_IS_OPEN} AND EXISTS (
    SELECT FROM recorder_run AS part
    WHERE part.root_plan_id = run.root_plan_id AND part.project_id = run.project_id
        AND part.abandoned_at IS NULL)"""

TOO_OLD = f"""deleted_at IS NULL AND recorded_at < %(before)s AND {_END} < %(before)s
    AND NOT ({_LIVES})"""
"""Which runs are over since before a moment."""

TOO_MANY = f"""deleted_at IS NULL AND (recorded_at, root_plan_id) <= (%(last_at)s, %(last)s)
    AND NOT ({_LIVES})"""
"""Which runs come after those that `LAST_KEPT` leaves."""

LAST_KEPT = f"""
SELECT recorded_at, root_plan_id FROM run WHERE {_OF_PROJECT} AND deleted_at IS NULL
ORDER BY recorded_at DESC, root_plan_id DESC LIMIT 1 OFFSET %(keep_runs)s"""
"""Finds the newest run of those that are too many."""

OLDEST_FIRST = "recorded_at, root_plan_id"
BY_ID = "root_plan_id"
BY_SUBJECT = "subject::name, root_plan_id"
"""That is by id, too, and leads along the index of subjects."""

COUNT = f"SELECT count(*) FROM run WHERE {_OF_PROJECT}"


def choosing(which: str, order: str, locking: str) -> str:
    """Return the statement that finds at most `most` runs, and locks them.

    Args:
        which: The condition that holds for them.
        order: In which order they are taken. Whoever waits for locks goes by the ids.
        locking: Whether it waits, or passes over what others have locked, or locks none.
    """
    return f"""
    SELECT root_plan_id, session_id FROM run WHERE {_OF_PROJECT} AND {which}
    ORDER BY {order} LIMIT %(most)s {locking}"""


def among(which: str) -> str:
    """Return the condition for those of the runs that are named."""
    return f"{which} AND root_plan_id = ANY(%(runs)s)"


def on_its_shard(change: str) -> str:
    """Return one of `CUTS` or `SWEEPS` as Citus needs it, which goes by the run."""
    return change.replace("WHERE ctid", f"WHERE {_OF_RUNS} AND ctid", 1)


def counting(change: str, spans: str = "0") -> str:
    """Return a statement that returns how many rows another one changes, and how many spans.

    Args:
        change: The other one, without RETURNING.
        spans: The number of spans in a row, as SQL.
    """
    return (
        f"WITH changed AS ({change} RETURNING {spans} AS spans)"
        " SELECT count(*), coalesce(sum(spans), 0)::bigint FROM changed"
    )


WAITING = "FOR NO KEY UPDATE"
PASSING_OVER = "FOR NO KEY UPDATE SKIP LOCKED"
UNLOCKED = ""


def burying(which: str) -> str:
    """Return the statement that makes locked runs tombstones, and returns them.

    Whose they were stays until they are closed, to be found again.

    Args:
        which: The condition, once more: it may have ceased to hold before they were locked.
    """
    return f"""
    UPDATE run SET deleted_at = coalesce(deleted_at, %(now)s), revision = revision + 1,
    status = 'unknown', reason = NULL, started_at = NULL, finished_at = NULL,
    recorder_id = NULL, title = NULL, agent_name = NULL, tags = '{{}}', masked = '{{}}',
    traceparent = NULL, cancel_requested_at = NULL, input_tokens = 0, output_tokens = 0,
    cost_usd = 0, tool_calls = 0, failures = 0, projected = 0, projection_version = 0,
    projection_error = NULL, next_projection_at = NULL, span_bytes = 0, settle_at = NULL
    WHERE {_OF_RUNS} AND {which} RETURNING root_plan_id, session_id"""


LEAVE_LEASES = f"DELETE FROM recorder_run WHERE {_OF_RUNS}"

FORGET_PENDING = f"DELETE FROM pending_run WHERE {_OF_RUNS}"
"""Takes buried runs from the projectors."""

PENDING_RUNS = f"""
SELECT root_plan_id FROM pending_run WHERE {_OF_PROJECT} AND since <= %(now)s
ORDER BY root_plan_id"""
"""Finds the runs whose records lack spans that arrived by `now`."""

# The comparison of names can use the index behind row-level security; it is of the first 63 bytes.
_OF_SESSIONS = f"""{_OF_PROJECT} AND session = ANY(%(sessions)s)
    AND session::name = ANY(%(sessions)s::text[]::name[])"""

FORGET_SESSIONS = f"DELETE FROM session_state WHERE {_OF_SESSIONS}"


def _of_runs(table: str) -> str:
    """Return the condition for rows of runs, by the index that the table has of them."""
    return f"{_OF_RUNS} AND {ALWAYS}" if table in TABLES.values() else _OF_RUNS


BLOCK_ROWS = 50
"""How many rows a block of spans counts as: it may have megabytes, in rows of 2 kB."""


def _some(table: str, condition: str = "true", most: str = "%(most)s") -> str:
    return f"""ctid = ANY(ARRAY(
        SELECT ctid FROM {table} WHERE {_of_runs(table)} AND {condition} LIMIT {most}))"""


_PLANS, _CALLS = TABLES[Kind.PLAN], TABLES[Kind.TOOL_CALL]

_PLAN_LINKS = "num_nonnulls(parent_plan_id, tool_call_id, opened_by_step_id) > 0"

# Behind all others in the index of the run, so that each is looked at once.
_IS_CUT = "revision = -1"
_IS_WHOLE = "revision > -1"

CUTS = (
    f"""
    UPDATE {_PLANS} SET parent_plan_id = NULL, tool_call_id = NULL, opened_by_step_id = NULL,
        started_at = NULL, {_IS_CUT}
    WHERE {_some(_PLANS, f"{_PLAN_LINKS} AND {_IS_WHOLE}")}""",
    f"""
    UPDATE {_CALLS} SET parent_tool_call_id = NULL, {_IS_CUT}
    WHERE {_some(_CALLS, f"parent_tool_call_id IS NOT NULL AND {_IS_WHOLE}")}""",
)
"""Take the circles out of what lies below runs, so that rows can go one after the other."""

_BLOCKS_AT_ONCE = f"ceil(%(most)s::numeric / {BLOCK_ROWS})"

SWEEPS = {
    "otel_block": f"DELETE FROM otel_block WHERE {_some('otel_block', most=_BLOCKS_AT_ONCE)}",
    **{
        table: f"DELETE FROM {table} WHERE {_some(table)}"
        for table in (
            "otel_span",
            "removed_record",
            *(TABLES[kind] for kind in (Kind.TOOL_CALL, Kind.THINK_ACT, Kind.STEP, Kind.PLAN)),
        )
    },
}
"""Delete `most` rows below runs, table by table, so that nothing refers to what is gone."""

SPANS_IN = {"otel_block": "spans", "otel_span": "1"}
"""How many spans a row of a table holds, as SQL."""

LOCK_SESSIONS = f"""
SELECT FROM session_state WHERE {_OF_SESSIONS}
ORDER BY session_id FOR UPDATE"""
"""Comes before states are deleted: so no two that delete wait for each other in a circle."""

CLOSE = f"""
UPDATE run SET swept_at = %(now)s, session_id = NULL, subject = NULL WHERE {_OF_RUNS}"""

# A run without a session has its own id for one.
LEFT_SESSIONS = f"""
SELECT session_id FROM run
WHERE {_OF_PROJECT} AND swept_at IS NULL AND session_id = ANY(%(sessions)s)
    AND session_id::name = ANY(%(sessions)s::text[]::name[])
UNION ALL
SELECT root_plan_id::text FROM run
WHERE {_OF_PROJECT} AND swept_at IS NULL AND root_plan_id = ANY(%(named)s)"""
"""Finds those of some conversations, or of the runs `named`, that still belong to a run."""


def forgetting(locking: str) -> str:
    """Return the statement that deletes some tombstones."""
    return f"""
    DELETE FROM run WHERE {_OF_PROJECT} AND root_plan_id IN (
        SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND swept_at < %(before)s
        ORDER BY swept_at LIMIT %(most)s {locking})
    RETURNING root_plan_id"""


BELOW_RUNS = tuple(
    table.name
    for table in METADATA.sorted_tables
    if "root_plan_id" in table.columns and table.name != "run"
)
"""Every table with something of runs."""

COUNT_LEFT = " UNION ALL ".join(
    (
        *(f"SELECT count(*) FROM {table} WHERE {_of_runs(table)}" for table in BELOW_RUNS),
        f"SELECT count(*) FROM run WHERE {_OF_RUNS} AND swept_at IS NULL",
    )
)
"""Counts what is left of runs that were deleted."""

COUNT_LEFT_OF_SUBJECT = f"""
SELECT count(*) FROM run WHERE {_OF_PROJECT} AND {OF_SUBJECT}
UNION ALL
SELECT count(*) FROM session_state WHERE {_OF_SESSIONS}"""
"""Counts a subject's runs, and the states of conversations that were theirs."""
