"""Token counts and costs: whatever the emitter counts inside its totals, and wherever it does."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from tests.otel.made_traces import chat, make_span, projection_of, spans_from, tool
from tests.otel.projections import Projected, project
from tracer.otel.projection.project import USAGE_OF_AGENT
from tracer.records import Kind

USAGE = "gen_ai.usage."
CLAUDE = {"gen_ai.request.model": "claude-sonnet-4-5", "gen_ai.provider.name": "anthropic"}


def the_round(run: Projected) -> dict[str, Any]:
    (think_act,) = run.records[Kind.THINK_ACT].values()
    return think_act


def call_with(**usage: int) -> dict[str, Any]:
    counts = {USAGE + name.replace("__", "."): count for name, count in usage.items()}
    return {"gen_ai.operation.name": "chat", **CLAUDE, **counts}


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        # A part cannot be larger than its whole.
        ({"input_tokens": 7, "output_tokens": 1, "cache_read__input_tokens": 9000}, (9007, 1)),
        ({"input_tokens": 7, "output_tokens": 1, "cache_creation_input_tokens": 8}, (15, 1)),
        ({"input_tokens": 9, "output_tokens": 1, "reasoning__output_tokens": 5}, (9, 6)),
        # The reported total proves which.
        (
            {
                "input_tokens": 100,
                "output_tokens": 10,
                "cache_read_input_tokens": 50,
                "total_tokens": 160,
            },
            (150, 10),
        ),
        (
            {
                "input_tokens": 100,
                "output_tokens": 10,
                "cache_read_input_tokens": 50,
                "total_tokens": 110,
            },
            (100, 10),
        ),
        (
            {
                "input_tokens": 100,
                "output_tokens": 10,
                "reasoning_tokens": 4,
                "total_tokens": 114,
            },
            (100, 14),
        ),
        # Without proof, the parts are inside the total.
        ({"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 50}, (100, 10)),
        ({"input_tokens": 100, "output_tokens": 10, "total_tokens": 500}, (100, 10)),
    ],
)
def test_totals_include_their_parts(usage: dict[str, int], tokens: tuple[int, int]) -> None:
    row = the_round(projection_of(make_span(1, "chat m", call_with(**usage))))

    assert (row["input_tokens"], row["output_tokens"]) == tokens


def test_proof_of_one_call_holds_for_the_other_calls_of_its_scope_and_provider() -> None:
    proof = call_with(input_tokens=7, output_tokens=1, cache_read_input_tokens=9000)
    unclear = call_with(input_tokens=700, output_tokens=1, cache_read_input_tokens=500)
    spans = [
        make_span(1, "chat m", proof, at=(0, 1), scope="a"),
        make_span(2, "chat m", unclear, at=(1, 2), scope="a"),
        make_span(3, "chat m", unclear, at=(2, 3), scope="b"),
    ]
    for order in permutations(spans):
        run = project(spans_from(*order))
        rounds = sorted(run.records[Kind.THINK_ACT].values(), key=lambda each: each["started_at"])
        assert [each["input_tokens"] for each in rounds] == [9007, 1200, 700]


@pytest.mark.parametrize(
    ("model", "more", "usd"),
    [
        ("gpt-5-mini", {"gen_ai.openai.response.service_tier": "flex"}, "0.00075"),
        ("gpt-5-mini", {"openai.response.service_tier": "batch"}, "0.00075"),
        ("gpt-5-mini", {"gen_ai.response.service_tier": "priority"}, "0.0027"),
        ("gpt-5-mini", {"gen_ai.openai.request.service_tier": "auto"}, "0.0015"),
        (
            "gpt-5-mini",
            {
                "gen_ai.openai.request.service_tier": "flex",
                "gen_ai.openai.response.service_tier": "default",
            },
            "0.0015",
        ),
        ("gpt-5-mini", {"gen_ai.usage.cost": '{"input": 0.1, "output": 0.2}'}, "0.3"),
        ("gpt-5-mini", {"gen_ai.usage.cost": '{"total": "0.25"}'}, "0.25"),
        ("gpt-5-mini", {"gen_ai.usage.cost": "$0.25"}, "0.25"),
        ("gpt-5-mini", {"gen_ai.usage.cost": "free"}, "0.0015"),
        ("claude-sonnet-4-5", {"gen_ai.usage.cache_creation_input_tokens": 1000}, "0.01425"),
        (
            "claude-sonnet-4-5",
            {
                "gen_ai.usage.cache_creation_input_tokens": 1000,
                "gen_ai.usage.cache_creation.ephemeral_1h_input_tokens": 600,
            },
            "0.0156",
        ),
        ("gemini-2.5-flash", {"gen_ai.usage.input_audio_tokens": 1000}, "0.00255"),
    ],
)
def test_cost_follows_tiers_kinds_of_tokens_and_reports(
    model: str, more: dict[str, Any], usd: str
) -> None:
    used = {"gen_ai.usage.input_tokens": 2000, "gen_ai.usage.output_tokens": 500}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    run = projection_of(make_span(1, "chat m", {**asked, **used, **more}))

    assert the_round(run)["cost_usd"] == Decimal(usd)


def test_usage_that_only_an_agents_span_has_becomes_an_inferred_round() -> None:
    used = {"gen_ai.usage.input_tokens": 12000, "gen_ai.usage.output_tokens": 800}
    spans = [
        make_span(1, "invoke_agent claude", {**used, "gen_ai.usage.cost": 0.048}, at=(0, 9)),
        tool(2, "Bash", parent=1, at=(1, 2)),
        make_span(3, "invoke_agent helper", used, parent=2, at=(1, 2)),
    ]

    run = projection_of(*spans)

    row = the_round(run)
    assert (row["inferred"], row["inferred_from"]) == (True, USAGE_OF_AGENT)
    assert (row["input_tokens"], row["cost_usd"]) == (12000, Decimal("0.048"))
    assert (row["messages"], row["thought"]) == (None, None)
    assert (run.whole_run["input_tokens"], run.whole_run["cost_usd"]) == (12000, Decimal("0.048"))


def test_inferred_round_is_removed_when_a_model_call_arrives() -> None:
    used = {"gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 8}
    run = projection_of(
        make_span(1, "invoke_agent a", used, at=(0, 9)), chat(2, tokens=5, parent=1, at=(1, 2))
    )

    assert (the_round(run)["inferred"], run.whole_run["input_tokens"]) == (False, 5)


def test_spans_with_tokens_that_no_rule_reads_make_the_cost_unknown() -> None:
    unread = {"acme.usage.input_tokens": 5, "acme.usage.outputTokens": 7}
    run = projection_of(
        make_span(1, "invoke_agent a", at=(0, 9)),
        make_span(2, "acme.request", unread, parent=1, at=(1, 2)),
        make_span(3, "inner", unread, parent=2, at=(1, 2)),
        make_span(4, "workflow.step", unread, parent=1, at=(2, 6)),
        chat(5, parent=4, at=(3, 4)),
    )

    assert run.whole_run["unread_spans"] == 1
    assert run.whole_run["unpriced_calls"] == 2


def test_run_names_the_scopes_of_its_unread_spans() -> None:
    tokens = {"acme.usage.input_tokens": 5}
    scopes = ("b.llm", "a.llm", "b.llm", "")
    run = projection_of(
        make_span(9, "invoke_agent a"),
        *(
            make_span(number, "acme.request", tokens, parent=9, scope=scope)
            for number, scope in enumerate(scopes, 1)
        ),
    )

    assert run.whole_run["unread_spans"] == 4
    assert run.whole_run["unread_scopes"] == ["a.llm", "b.llm"]
