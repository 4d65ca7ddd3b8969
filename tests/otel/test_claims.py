"""A run names the tool calls of other runs that it carries on, by the provider's call ids."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from tests.otel.captured import NAMES, projected, spans_of
from tests.otel.made_traces import agent, chat, make_span, pairs, projection_of, tool
from tracer.records import Kind

QUESTION: dict[str, Any] = {"role": "user", "content": "Book it."}
ASKING: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "function": {"name": "book"}}],
}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "OpenAI": [{"role": "tool", "tool_call_id": "c1", "content": "booked"}],
    "OpenAI Responses": [{"type": "function_call_output", "call_id": "c1", "output": "booked"}],
    "Anthropic": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": ""}]}
    ],
    "Bedrock": [{"role": "user", "content": [{"toolResult": {"toolUseId": "c1"}}]}],
    "AI SDK": [{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1"}]}],
    "GenAI conventions": [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "booked"}]}
    ],
}


def asked(*messages: dict[str, Any], number: int = 2, **more: Any) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "Done."}]),
    }
    return make_span(number, "chat m", attributes, **more)


def keys_of(*spans: dict[str, Any]) -> list[str]:
    keys: list[str] = projection_of(*spans).whole_run["follows_keys"]
    return keys


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS.keys())
def test_run_that_begins_with_the_answer_to_a_call_follows_it(
    answers: list[dict[str, Any]],
) -> None:
    assert keys_of(agent(1, "a"), asked(QUESTION, ASKING, *answers, parent=1)) == ["c1"]


def test_run_that_begins_with_a_new_question_follows_no_call() -> None:
    messages = [QUESTION, ASKING, *ANSWERS["OpenAI"], {"role": "assistant", "content": "Booked."}]

    assert keys_of(agent(1, "a"), asked(*messages, QUESTION, parent=1)) == []


def test_answers_to_earlier_calls_of_the_same_run_are_not_followed() -> None:
    first = chat(2, ("c1", "book", "{}"), parent=1, at=(1, 2))
    second = asked(QUESTION, ASKING, *ANSWERS["OpenAI"], number=3, parent=1, at=(3, 4))

    assert keys_of(agent(1, "a"), first, second) == []


def test_tool_call_that_no_round_of_the_run_chose_is_followed() -> None:
    """So an approved call runs: in a new trace, before its first round."""
    approved = tool(3, "book", "{}", "c1", parent=1, at=(0, 1))

    assert keys_of(agent(1, "a"), approved, asked(QUESTION, parent=1, at=(2, 3))) == ["c1"]
    assert keys_of(approved) == ["c1"]


def test_tool_call_is_not_followed_if_choices_are_unknown() -> None:
    silent = make_span(2, "chat m", {"gen_ai.operation.name": "chat"}, parent=1, at=(0, 1))

    assert keys_of(agent(1, "a"), silent, tool(3, "book", "{}", "c1", parent=1, at=(2, 3))) == []


WORKFLOW = make_span(1, "w", {"gen_ai.operation.name": "invoke_workflow"})

LINK = {"traceId": "0af7651916cd43dd8448eb211c800001", "spanId": "00000000000000a1"}


@pytest.mark.parametrize("value", [True, "true"])
def test_span_link_that_continues_is_a_claim_for_the_run_and_the_call(value: bool | str) -> None:
    link = LINK | {"attributes": pairs({"tracer.continues": value})}

    run = projection_of({**agent(1, "a"), "links": [link]}).whole_run

    assert run["follows_runs"] == [UUID(LINK["traceId"])]
    earlier = {**tool(0xA1, "book"), "traceId": LINK["traceId"]}
    (call_id,) = projection_of(earlier).records[Kind.TOOL_CALL]
    assert run["follows_calls"] == [call_id]


def test_other_span_links_are_no_claims() -> None:
    links = [LINK, LINK | {"attributes": pairs({"tracer.continues": False})}]

    run = projection_of({**agent(1, "a"), "links": links}).whole_run

    assert (run["follows_runs"], run["follows_calls"]) == ([], [])


def test_work_outside_of_any_agent_is_bare() -> None:
    is_bare = [
        projection_of(*spans).whole_run["is_bare"]
        for spans in (
            [tool(1, "book")],
            [chat(1), tool(2, "book")],
            [agent(1, "a")],
            [agent(1, "a"), chat(2)],
            [make_span(1, "SELECT")],
            [WORKFLOW, chat(2)],
        )
    ]

    assert is_bare == [True, True, False, False, False, False]


def test_workflow_whose_steps_are_other_traces_is_agent_work() -> None:
    run = projection_of(WORKFLOW)

    assert run.whole_run["is_agent_work"] is True
    assert [step["plan_id"] for step in run.records[Kind.STEP].values()] == [run.root_plan_id]


def test_runs_of_the_captures_follow_no_calls() -> None:
    runs = [run for name in NAMES for run in projected(spans_of(name))]

    assert [run.whole_run["follows_keys"] for run in runs if run.whole_run["follows_keys"]] == []
