"""The views of figures: what plans and agents took, and how the calls of tools went."""

from __future__ import annotations

from tracer.records import Kind
from tracer.storage.analysts import VIEWS
from tracer.storage.tables import IS_FAILED, TABLES
from tracer.storage.view_columns import Column, View, in_run, joined, milliseconds, place, said_of


def _costs(name: str, comment: str, of: Column) -> View:
    """Return a view of what rounds and calls took, grouped by a field of their step."""
    key, _, _ = of
    step = joined(Kind.STEP, "step", "step_id", "each", "step_id")
    keys = f"each.project_id, each.root_plan_id, step.{key}"
    failed = f"CASE WHEN each.{IS_FAILED} THEN 1 ELSE 0 END"
    took = f"coalesce({milliseconds('each')}, 0)"
    source = f"""FROM (
        SELECT {keys}, 1 AS think_acts, 0 AS tool_calls, {failed} AS failures,
            coalesce(each.input_tokens, 0) AS input_tokens,
            coalesce(each.output_tokens, 0) AS output_tokens,
            coalesce(each.cost_usd, 0) AS cost_usd, {took} AS model_ms, 0::float8 AS tool_ms
        FROM {TABLES[Kind.THINK_ACT]} AS each{in_run("each")}{step}
        UNION ALL
        SELECT {keys}, 0, 1, {failed}, 0, 0, 0, 0, {took}
        FROM {TABLES[Kind.TOOL_CALL]} AS each{in_run("each")}{step}
    ) AS part GROUP BY part.project_id, part.root_plan_id, part.{key}"""
    return View(name, comment, (*place("part"), of, *_SUMS), source)


_SUMS = (
    ("think_acts", "sum(part.think_acts)::bigint", "Rounds that were taken."),
    ("tool_calls", "sum(part.tool_calls)::bigint", "Tool calls that were made."),
    ("failures", "sum(part.failures)::bigint", "How many of both failed."),
    ("input_tokens", "sum(part.input_tokens)::bigint", said_of(Kind.RUN, "input_tokens")),
    ("output_tokens", "sum(part.output_tokens)::bigint", said_of(Kind.RUN, "output_tokens")),
    ("cost_usd", "sum(part.cost_usd)", said_of(Kind.RUN, "cost_usd")),
    ("model_ms", "sum(part.model_ms)", "How long models were waited for, in milliseconds."),
    (
        "tool_ms",
        "sum(part.tool_ms)",
        "How long tools took, in milliseconds, added up: calls that ran at the same time, and "
        "what sub-plans took within the calls that opened them, count in full.",
    ),
)

_PLAN_COSTS = _costs(
    "plan_costs",
    "What each plan took by itself, without its sub-plans; trace.runs has what a whole run took.",
    ("plan_id", "part.plan_id", "The plan; null for what hangs under none that is known."),
)

_AGENT_COSTS = _costs(
    "agent_costs",
    "What each agent took in each run, in all its plans, without what it delegated.",
    ("agent_name", "part.agent_name", "The agent; null for what hangs under none that is known."),
)

_TOOL_STATS = View(
    "tool_stats",
    "How the calls of each tool went, over all time; narrow it as docs/queries.md shows.",
    (
        ("project_id", "call.project_id", said_of(Kind.RUN, "project_id")),
        ("name", "call.name", "The tool."),
        ("calls", "count(*)", "How often it was called."),
        *(
            (status, f"count(*) FILTER (WHERE call.status = '{status}')", f"How many {said}.")
            for status, said in (
                ("succeeded", "succeeded"),
                ("failed", "failed"),
                ("cancelled", "were cancelled"),
                ("abandoned", "are abandoned"),
            )
        ),
        ("retried", "count(*) FILTER (WHERE call.retries > 0)", "How many were tried again."),
        *(
            (
                f"p{percent}_ms",
                f"percentile_disc({percent / 100}) WITHIN GROUP (ORDER BY call.duration_ms)",
                f"Of those that ended {percent} in 100 took no longer, in milliseconds.",
            )
            for percent in (50, 95, 99)
        ),
        ("total_ms", "sum(call.duration_ms)", "How long they took together, in milliseconds."),
        ("first_at", "min(call.began_at)", "When the first call began."),
        ("latest_at", "max(call.began_at)", "When the latest call began."),
    ),
    f"FROM {VIEWS}.tool_calls AS call GROUP BY call.project_id, call.name",
)

FIGURE_VIEWS = (_PLAN_COSTS, _AGENT_COSTS, _TOOL_STATS)
