"""Copilot CLI follows OpenTelemetry's GenAI conventions, with a few habits of its own.

System prompts and descriptions of tools were removed from the capture with sub-agents.
"""

from __future__ import annotations

import random

import pytest

from tests.otel.coding_agents.captured import messages_of, projected, single
from tests.otel.made_traces import make_span, projection_of, the_call
from tests.otel.projections import differences
from tracer.records import Kind

NAME = "copilot-cli-two-tools"


def test_a_captured_run_has_its_rounds_and_calls() -> None:
    (run,) = projected(messages_of(NAME))

    assert (run.whole_run["input_tokens"], run.whole_run["output_tokens"]) == (3903, 216)
    (plan,) = run.records[Kind.PLAN].values()
    assert plan["user_request"] == "Say how many planets the list has."
    assert (plan["title"], plan["agent_name"]) == (plan["user_request"], "copilot")
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


def test_a_captured_sub_agent_is_below_the_call_that_started_it() -> None:
    (run,) = projected(messages_of("copilot-cli-subagents"))

    calls = run.records[Kind.TOOL_CALL]
    plans = run.records[Kind.PLAN].values()
    assert sorted(
        (
            calls[plan["tool_call_id"]]["arguments"].partition("[")[2][:6],
            plan["agent_name"],
            plan["summary"],
            plan["inferred"],
        )
        for plan in plans
        if plan["tool_call_id"] is not None
    ) == [
        ("pair/a", "general-purpose", "There are 95 moons.", False),
        ("pair/b", "general-purpose", "There are 7 rings.", False),
    ]
    assert sorted(call["status"].value for call in calls.values()) == [
        "failed",
        "failed",
        *["succeeded"] * 4,
    ]


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ("wc: no file\n<shellId: 2 completed with exit code 1>", "failed"),
        ("<shellId: 2 completed with exit code -1>\n", "failed"),
        ("2 planets.txt\n<shellId: 0 completed with exit code 0>", "succeeded"),
        ("<shellId: 0 completed with exit code 1>\nwas in the file", "succeeded"),
    ],
)
def test_command_whose_result_ends_with_an_exit_code_other_than_zero_failed(
    result: str, status: str
) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read_bash",
        "gen_ai.tool.call.result": result,
    }

    call = the_call(
        projection_of(make_span(1, "execute_tool read_bash", attributes, scope="github.copilot"))
    )

    assert call["status"] == status
