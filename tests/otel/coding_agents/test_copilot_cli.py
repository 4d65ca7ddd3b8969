"""Copilot CLI follows OpenTelemetry's GenAI conventions: it needs no dialect of its own."""

from __future__ import annotations

import random

from tests.otel.coding_agents.captured import messages_of, projected, single
from tests.otel.projections import differences
from tracer.records import Kind

NAME = "copilot-cli-two-tools"


def test_a_captured_run_has_its_rounds_and_calls() -> None:
    (run,) = projected(messages_of(NAME))

    assert (run.whole_run["input_tokens"], run.whole_run["output_tokens"]) == (3903, 216)
    (plan,) = run.records[Kind.PLAN].values()
    assert "Say how many planets the list has." in plan["user_request"]
    calls = sorted(run.records[Kind.TOOL_CALL].values(), key=lambda call: call["started_at"])
    assert [(call["name"], call["status"].value, call["inferred"]) for call in calls] == [
        ("bash", "succeeded", False),
        ("view", "failed", False),
    ]
    assert [bool(call["think_act_id"]) for call in calls] == [True, True]
    assert '"command"' in calls[0]["arguments"]


def test_records_are_equal_for_any_order_of_the_requests() -> None:
    (run,) = projected(messages_of(NAME))
    messages = single(messages_of(NAME))
    random.Random(0).shuffle(messages)

    (again,) = projected(messages)

    assert differences(again, run) == []
