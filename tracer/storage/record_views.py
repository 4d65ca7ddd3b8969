"""The views of records, and of the paths that lead to them."""

from __future__ import annotations

from tracer.records import Kind
from tracer.storage.analysts import VIEWS
from tracer.storage.tables import TABLES
from tracer.storage.view_columns import (
    Column,
    View,
    began_at,
    errors,
    fields,
    in_run,
    joined,
    milliseconds,
    outcome,
    place,
    said_of,
    shown_status,
)

_PLAN = TABLES[Kind.PLAN]
_STEP = TABLES[Kind.STEP]
_ROUND = TABLES[Kind.THINK_ACT]
_CALL = TABLES[Kind.TOOL_CALL]

_OF_RUN = (
    ("session_id", "run.session_id", said_of(Kind.RUN, "session_id")),
    ("subject", "run.subject", said_of(Kind.RUN, "subject")),
)
_AGENT = ("agent_name", "step.agent_name", "The agent whose step it belongs to.")
_PLAN_ID = ("plan_id", "step.plan_id", "The plan that its step belongs to.")
_DEPTH = ("depth", "plan.depth", "How many sub-plans lie above its plan: 0 in the root plan.")


def _cast(text: str, comment: str) -> Column:
    """Return a column that casts a text of a call to `jsonb`."""
    return f"{text}_json", f"CASE WHEN call.{text}_fit THEN call.{text}::jsonb END", comment


_PLAN_COLUMNS = (
    *place("plan"),
    *fields(
        Kind.PLAN,
        "plan",
        "plan_id parent_plan_id tool_call_id opened_by_step_id"
        " position depth title agent_name user_request summary"
        " template template_version",
    ),
    began_at("plan", ", with tool_call_id IS NOT NULL,"),
    *outcome("plan"),
    *errors("plan"),
    *fields(Kind.PLAN, "plan", "inferred inferred_from"),
)

_RUNS = View(
    "runs",
    "Runs: one row for each root plan, with totals over everything below it.",
    (
        *place("run"),
        *fields(Kind.RUN, "run", "title agent_name session_id subject tags traceparent"),
        began_at("run"),
        *outcome("run"),
        *fields(
            Kind.RUN,
            "run",
            "input_tokens output_tokens cost_usd tool_calls failures"
            " cancel_requested_at source is_agent_work",
        ),
    ),
    "FROM run WHERE run.deleted_at IS NULL",
)

_PLANS = View(
    "plans",
    "Plans: root plans and sub-plans.",
    (*_PLAN_COLUMNS, *_OF_RUN),
    f"FROM {_PLAN} AS plan{in_run('plan')}",
)

_SUB_PLANS = View(
    "sub_plans",
    "Sub-plans, each with the tool call that opened it.",
    (
        *_PLAN_COLUMNS,
        *_OF_RUN,
        (
            "opened_by",
            "CASE WHEN plan.tool_call_id IS NOT NULL THEN 'tool call'"
            " WHEN plan.opened_by_step_id IS NOT NULL THEN 'hand-off' END",
            "What opened it: `tool call`, or `hand-off` where a step did without one.",
        ),
        ("tool_name", "call.name", "The tool that was called to open it."),
        ("tool_arguments", "call.arguments", "The arguments of that call, as text."),
        (
            "tool_status",
            shown_status("call"),
            "How far that call has come, as it is shown.",
        ),
        ("tool_duration_ms", milliseconds("call"), "How long that call took, in milliseconds."),
        (
            "opener_agent_name",
            "step.agent_name",
            "The agent that made the call, or handed off.",
        ),
    ),
    f"FROM {_PLAN} AS plan{in_run('plan')}"
    f"{joined(Kind.TOOL_CALL, 'call', 'tool_call_id', 'plan', 'tool_call_id')}"
    f" LEFT JOIN {_STEP} AS step ON step.project_id = plan.project_id"
    " AND step.root_plan_id = plan.root_plan_id"
    " AND step.step_id = coalesce(call.step_id, plan.opened_by_step_id)"
    " WHERE plan.plan_id <> plan.root_plan_id",
)

_STEPS = View(
    "steps",
    "Steps: the items of plans, each carried out by one agent.",
    (
        *place("step"),
        *fields(Kind.STEP, "step", "step_id plan_id position agent_name request result"),
        *outcome("step"),
        *errors("step"),
        _DEPTH,
        *_OF_RUN,
    ),
    f"FROM {_STEP} AS step{in_run('step')}"
    f"{joined(Kind.PLAN, 'plan', 'plan_id', 'step', 'plan_id')}",
)

_THINK_ACTS = View(
    "think_acts",
    "Think-acts: the rounds in which a model thinks and chooses tools.",
    (
        *place("round"),
        *fields(
            Kind.THINK_ACT,
            "round",
            "think_act_id step_id position requested_model model"
            " thought messages input_tokens output_tokens cost_usd",
        ),
        *outcome("round"),
        *errors("round"),
        _AGENT,
        _PLAN_ID,
        _DEPTH,
        *_OF_RUN,
    ),
    f"FROM {_ROUND} AS round{in_run('round')}"
    f"{joined(Kind.STEP, 'step', 'step_id', 'round', 'step_id')}"
    f"{joined(Kind.PLAN, 'plan', 'plan_id', 'step', 'plan_id')}",
)

_TOOL_CALLS = View(
    "tool_calls",
    "Tool calls, the items of batches included; one row for a call, however often it was tried.",
    (
        *place("call"),
        *fields(
            Kind.TOOL_CALL,
            "call",
            "tool_call_id step_id think_act_id parent_tool_call_id"
            " position name tool_type provider_call_id arguments",
        ),
        _cast("arguments", "The arguments as `jsonb`; null if Postgres cannot cast them."),
        *fields(Kind.TOOL_CALL, "call", "effective_arguments result"),
        _cast("result", "The result as `jsonb`; null if Postgres cannot cast it."),
        began_at("call"),
        *outcome("call"),
        *errors("call"),
        ("attempts", "call.attempt", said_of(Kind.TOOL_CALL, "attempt")),
        (
            "retries",
            "greatest(coalesce(call.attempt, 1) - 1, 0)",
            "How many times it was tried again.",
        ),
        *fields(
            Kind.TOOL_CALL,
            "call",
            "forged_arguments short_circuited_by state_changes still_running late_finished_at",
        ),
        ("late_status", "call.late_status::text", said_of(Kind.TOOL_CALL, "late_status")),
        *fields(Kind.TOOL_CALL, "call", "late_result inferred inferred_from"),
        _AGENT,
        _PLAN_ID,
        _DEPTH,
        *_OF_RUN,
    ),
    f"FROM {_CALL} AS call{in_run('call')}"
    f"{joined(Kind.STEP, 'step', 'step_id', 'call', 'step_id')}"
    f"{joined(Kind.PLAN, 'plan', 'plan_id', 'step', 'plan_id')}",
)

# Into a recursive query that walks all runs no condition would be pushed; and Citus takes one only
# where its own conditions say which run it is about.
LINEAGE_OF = f"""
CREATE OR REPLACE FUNCTION {VIEWS}.lineage_of(run uuid) RETURNS TABLE (
    project_id integer, root_plan_id uuid, plan_id uuid, depth integer, titles text[],
    agents text[], tools text[], plan_ids uuid[], tool_call_ids uuid[]
) LANGUAGE sql STABLE BEGIN ATOMIC
    WITH RECURSIVE walk AS (
        SELECT plan.project_id, plan.plan_id, 0 AS depth, ARRAY[plan.title] AS titles,
            ARRAY[plan.agent_name] AS agents, '{{}}'::text[] AS tools,
            ARRAY[plan.plan_id] AS plan_ids, '{{}}'::uuid[] AS tool_call_ids
        FROM {_PLAN} AS plan
        WHERE plan.root_plan_id = lineage_of.run AND plan.plan_id = lineage_of.run
        UNION ALL
        SELECT plan.project_id, plan.plan_id, walk.depth + 1, walk.titles || plan.title,
            walk.agents || plan.agent_name, walk.tools || call.name,
            walk.plan_ids || plan.plan_id, walk.tool_call_ids || plan.tool_call_id
        FROM walk
        JOIN {_PLAN} AS plan ON plan.root_plan_id = lineage_of.run
            AND plan.project_id = walk.project_id AND plan.parent_plan_id = walk.plan_id
        LEFT JOIN {_CALL} AS call ON call.root_plan_id = lineage_of.run
            AND call.project_id = plan.project_id AND call.tool_call_id = plan.tool_call_id
    )
    SELECT project_id, lineage_of.run, plan_id, depth, titles, agents, tools, plan_ids,
        tool_call_ids
    FROM walk;
END"""

_LINEAGE = View(
    "lineage",
    "The path from the root to each plan that is reached from there. Ask for one root_plan_id, or "
    "for few: each run is walked by itself. On Citus ask trace.lineage_of('…') instead.",
    (
        *place("run"),
        ("plan_id", "walk.plan_id", "The plan that the path leads to."),
        ("depth", "walk.depth", "How many sub-plans lie above it, by the path: 0 for the root."),
        ("titles", "walk.titles", "The titles of the plans on the path, from the root on."),
        ("agents", "walk.agents", "The agents that these plans were given to."),
        (
            "tools",
            "walk.tools",
            "The tools that opened the sub-plans on the path: one fewer than plans; null where a "
            "hand-off did.",
        ),
        ("plan_ids", "walk.plan_ids", "The plans on the path, itself the last."),
        ("tool_call_ids", "walk.tool_call_ids", "The tool calls that opened them, as in `tools`."),
    ),
    f"FROM run JOIN LATERAL {VIEWS}.lineage_of(run.root_plan_id) AS walk"
    " ON walk.project_id = run.project_id WHERE run.deleted_at IS NULL",
)

RECORD_VIEWS = (_RUNS, _PLANS, _SUB_PLANS, _STEPS, _THINK_ACTS, _TOOL_CALLS, _LINEAGE)
