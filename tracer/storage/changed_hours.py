"""The SQL by which whoever changes calls of an old hour says so: marks in `changed_hour`.

A mark is made in the transaction of the change, for the hours in which the calls were before and
are after it. `tracer.storage.summariser` takes it away with a snapshot that sees the change. What
is young needs none: see decision 28 for why none is missing.
"""

from __future__ import annotations

from tracer.records import Kind
from tracer.storage.tables import ALWAYS, START, TABLES, start_of

SETTLED_HOURS = 26
"""How long ago an hour has to have ended to be summed up."""

MARKED_HOURS = 24
"""What started longer ago is marked: for two hours more, since clocks differ and writing takes
time."""


def hour_of(moment: str) -> str:
    """Return when the hour of a moment began, as SQL."""
    return f"date_bin('1 hour', {moment}, 'epoch')"


def day_of(moment: str) -> str:
    """Return when the day of a moment began, in UTC, as SQL."""
    return f"date_bin('1 day', {moment}, 'epoch')"


def horizon(project: str) -> str:
    """Return the moment before which what changes is marked, as SQL.

    Args:
        project: The project's id.
    """
    # What is summed up is marked whatever the clock says now: it may have been ahead before.
    return (
        f"greatest((SELECT until FROM summed_range WHERE summed_range.project_id = {project}),"
        f" statement_timestamp() - interval '{MARKED_HOURS} hours')"
    )


def marking(moments: str, project: str = "$1") -> str:
    """Return the statement that marks the hours of moments that are old.

    Args:
        moments: A query for `project_id` and `moment`.
        project: Whose horizon counts; a parameter is asked for once.
    """
    return f"""
    INSERT INTO changed_hour (project_id, hour)
    SELECT DISTINCT touched.project_id, {hour_of("touched.moment")}
    FROM ({moments}) AS touched
    WHERE touched.moment < {horizon(project)}"""


BEFORE_AND_AFTER = {
    Kind.TOOL_CALL: f"{start_of('old')} AS was_at, {start_of('new')} AS is_at",
    Kind.PLAN: f"""
        CASE WHEN old.tool_call_id IS DISTINCT FROM new.tool_call_id
            OR {start_of("old")} IS DISTINCT FROM {start_of("new")}
            THEN ARRAY[old.tool_call_id, new.tool_call_id] END AS openers""",
}
"""What a statement that changes records of a kind returns, besides their run, to be marked."""


def moments_of(kind: Kind, changed: str, project: str = "$1") -> str:
    """Return a query for the moments of the calls that changes are about.

    Args:
        kind: Calls, or plans, which are about the calls that opened them.
        changed: The part of a statement that returned `root_plan_id` and `BEFORE_AND_AFTER`.
        project: The project's id, in terms of `changed`.
    """
    if kind is Kind.TOOL_CALL:
        return f"""
        SELECT {project} AS project_id, unnest(ARRAY[was_at, is_at]) AS moment FROM {changed}"""
    # By one array, for which any number of plans costs the same by the planner's reckoning: else it
    # would plan each write anew, which takes longer than the write.
    return f"""
        SELECT call.project_id, {start_of("call")} AS moment FROM {TABLES[Kind.TOOL_CALL]} AS call
        WHERE call.tool_call_id = ANY(ARRAY(SELECT unnest(openers) FROM {changed}))
            AND call.project_id = {project}"""


MARK_CALLS = marking(
    f"""
    SELECT project_id, {START} AS moment FROM {TABLES[Kind.TOOL_CALL]}
    WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND tool_call_id = ANY($3::uuid[])"""
)
"""Marks the hours of the calls $3 of the runs $2."""

MARK_RUNS = f"""
INSERT INTO changed_hour (project_id, hour)
SELECT DISTINCT project_id, {hour_of(START)} FROM {TABLES[Kind.TOOL_CALL]}
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND {ALWAYS}"""
"""Marks the hours of all calls of runs, young ones too: they go, whatever time it is."""


def marking_too(kind: Kind, change: str) -> str:
    """Return a statement that changes records of a kind, and marks the hours that this changes.

    Args:
        kind: What it changes.
        change: The statement, which has no `RETURNING`, of the project $1.
    """
    if kind not in BEFORE_AND_AFTER:
        return change
    return f"""
    WITH changed_record AS ({change}
        RETURNING new.root_plan_id, {BEFORE_AND_AFTER[kind]})
    {marking(moments_of(kind, "changed_record"))}"""
