"""The scenarios of the GenAI semantic conventions: transfers, callers, memory, A2A and MCP.

The shapes are those that `semantic-conventions-genai` documents; the values are made up.
"""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from tests.otel.made_traces import (
    agent,
    chat,
    make_span,
    outline,
    projection_of,
    spans_from,
    the_call,
    tool,
)
from tests.otel.projections import Projected, project
from tracer.otel.projection.agents import BY_CALLER_NAME, BY_TARGET
from tracer.records import Kind

PASS = {"gen_ai.transfer.mode": "pass_control"}


def transfer(number: int, target: str, call_id: str, **more: Any) -> dict[str, Any]:
    """Return a tool span that transfers to an agent, as the conventions name it."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": f"transfer_to_{target}",
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": "{}",
        "gen_ai.transfer.target.name": target,
        "gen_ai.transfer.target.type": "agent",
        **PASS,
    }
    return make_span(number, f"execute_tool transfer_to_{target} {target}", attributes, **more)


def call_of(run: Projected, name: str) -> dict[str, Any]:
    (found,) = (each for each in run.records[Kind.TOOL_CALL].values() if each["name"] == name)
    return found


def evidence(run: Projected) -> list[str | None]:
    return [plan["inferred_from"] for plan in run.records[Kind.PLAN].values() if plan["inferred"]]


def test_agent_span_below_a_transfer_becomes_its_sub_plan() -> None:
    run = projection_of(
        agent(1, "source"),
        chat(2, ("c1", "transfer_to_weather", "{}"), parent=1, at=(0, 1)),
        transfer(3, "weather", "c1", parent=1, at=(1, 9)),
        agent(4, "weather", parent=3, at=(2, 8)),
    )

    assert outline(run) == [
        "plan source",
        "  step source",
        "    round 1",
        "      call transfer_to_weather {}",
        "        plan weather",
        "          step weather",
    ]


HANDED_OVER = (
    make_span(1, "invoke_workflow desk", {"gen_ai.operation.name": "invoke_workflow"}, at=(0, 90)),
    agent(2, "source", parent=1, at=(1, 10)),
    chat(3, ("c1", "transfer_to_weather", "{}"), parent=2, at=(1, 2)),
    transfer(4, "weather", "c1", parent=2, at=(2, 3)),
    agent(5, "weather", parent=1, at=(11, 20)),
)


def test_later_agent_that_a_transfer_names_becomes_its_sub_plan() -> None:
    run = projection_of(*HANDED_OVER)

    assert outline(run)[-3:] == [
        "      call transfer_to_weather {}",
        "        plan weather (inferred)",
        "          step weather",
    ]
    assert evidence(run) == [BY_TARGET]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_transfers_back_and_forth_open_each_agent_once(order: tuple[int, ...]) -> None:
    turns = [
        agent(2, "a", parent=1, at=(1, 10)),
        transfer(3, "b", "c1", parent=2, at=(2, 3)),
        agent(4, "b", parent=1, at=(11, 20)),
        transfer(5, "a", "c2", parent=4, at=(12, 13)),
        agent(6, "a", parent=1, at=(21, 30)),
        transfer(7, "b", "c3", parent=6, at=(22, 23)),
        agent(8, "b", parent=1, at=(31, 40)),
    ]
    decoded = spans_from(
        make_span(1, "invoke_workflow w", {"gen_ai.operation.name": "invoke_workflow"}), *turns
    )
    parts = [decoded[:3], decoded[3:5], decoded[5:]]

    run = project([span for at in order for span in parts[at]])

    calls, plans = run.records[Kind.TOOL_CALL], run.records[Kind.PLAN].values()
    opened = [calls[plan["tool_call_id"]]["provider_call_id"] for plan in plans if plan["inferred"]]
    assert sorted(opened) == ["c1", "c2", "c3"]


def test_agent_that_two_transfers_name_is_not_linked() -> None:
    run = projection_of(
        *HANDED_OVER,
        agent(6, "other", parent=1, at=(1, 10)),
        transfer(7, "weather", "c2", parent=6, at=(2, 3)),
    )

    assert evidence(run) == []


def test_client_and_server_spans_of_a_remote_agent_are_one_agent() -> None:
    client = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "refund",
        "gen_ai.caller.type": "agent",
        "gen_ai.caller.name": "support",
    }
    run = projection_of(
        agent(1, "support"),
        tool(2, "ask_refund", "{}", parent=1, at=(1, 9)),
        make_span(3, "invoke_agent refund", client, parent=2, kind=3, at=(2, 8)),
        make_span(
            4, "SendMessage", {"a2a.method.name": "SendMessage"}, parent=3, kind=3, at=(2, 8)
        ),
        make_span(
            5,
            "SendMessage",
            {"a2a.method.name": "SendMessage", "gen_ai.agent.name": "refund"},
            parent=4,
            kind=2,
            at=(3, 7),
        ),
        agent(6, "refund", parent=5, at=(3, 7)),
        chat(7, parent=6, at=(3, 4)),
    )

    assert outline(run) == [
        "plan support",
        "  step support",
        "    call ask_refund {}",
        "      plan refund",
        "        step refund",
        "          round 1",
    ]


def test_a2a_server_span_without_an_agent_span_becomes_a_sub_plan() -> None:
    run = projection_of(
        agent(1, "support"),
        tool(2, "ask_refund", "{}", parent=1, at=(1, 9)),
        make_span(
            3,
            "SendMessage",
            {"a2a.method.name": "SendMessage", "gen_ai.agent.name": "refund"},
            parent=2,
            kind=2,
            at=(2, 8),
        ),
        chat(4, parent=3, at=(3, 4)),
        make_span(5, "GetTask", {"a2a.method.name": "GetTask"}, parent=2, kind=3, at=(5, 6)),
    )

    assert outline(run)[3:] == [
        "      plan refund",
        "        step refund",
        "          round 1",
    ]


def test_agent_without_a_parent_belongs_to_the_caller_that_it_names() -> None:
    remote = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "refund",
        "gen_ai.caller.name": "support",
    }
    run = projection_of(
        agent(1, "support", at=(0, 50)),
        agent(2, "other", at=(0, 50)),
        make_span(3, "invoke_agent refund", remote, kind=3, at=(2, 8)),
    )

    assert evidence(run) == [BY_CALLER_NAME]


def test_agent_whose_caller_runs_twice_is_not_linked() -> None:
    remote = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "refund",
        "gen_ai.caller.name": "support",
    }
    run = projection_of(
        agent(1, "support", at=(0, 50)),
        agent(2, "support", at=(0, 50)),
        make_span(3, "invoke_agent refund", remote, kind=3, at=(2, 8)),
    )

    assert evidence(run) == []


def test_workflow_is_named_by_its_agent_or_workflow_name_attribute() -> None:
    for name in ("gen_ai.agent.name", "gen_ai.workflow.name"):
        attributes = {"gen_ai.operation.name": "invoke_workflow", name: "desk"}
        run = projection_of(
            make_span(1, "invoke_workflow desk", attributes),
            agent(2, "a", parent=1, at=(0, 5)),
            agent(3, "b", parent=1, at=(6, 9)),
        )
        assert run.records[Kind.PLAN][run.root_plan_id]["agent_name"] == "desk"


def test_create_agent_span_makes_no_record() -> None:
    run = projection_of(
        agent(1, "a"), make_span(2, "create_agent b", {"gen_ai.operation.name": "create_agent"})
    )

    assert outline(run)[0] == "plan a"
    assert [plan["agent_name"] for plan in run.records[Kind.PLAN].values()] == ["a"]


@pytest.mark.parametrize(
    ("operation", "kind", "query", "found"),
    [
        ("retrieval", "RETRIEVER", "gen_ai.retrieval.query.text", "gen_ai.retrieval.documents"),
        ("search_memory", "MEMORY", "gen_ai.memory.query.text", "gen_ai.memory.records"),
    ],
)
def test_retrieval_and_memory_calls_have_a_query_and_a_result(
    operation: str, kind: str, query: str, found: str
) -> None:
    documents = '[{"id": "d1", "score": 0.9}]'
    attributes = {"gen_ai.operation.name": operation, query: "low tide", found: documents}
    run = projection_of(agent(1, "a"), make_span(2, operation, attributes, parent=1))

    call = call_of(run, operation)
    assert call["tool_type"] == kind
    assert (call["arguments"], call["result"]) == ("low tide", documents)


@pytest.mark.parametrize(
    "operation",
    [
        "create_memory_store",
        "delete_memory_store",
        "create_memory",
        "update_memory",
        "upsert_memory",
        "delete_memory",
    ],
)
def test_each_memory_operation_is_a_tool_call_without_a_choosing_round(operation: str) -> None:
    run = projection_of(
        agent(1, "a"),
        chat(2, parent=1, at=(0, 1)),
        make_span(3, operation, {"gen_ai.operation.name": operation}, parent=1, at=(2, 3)),
    )

    call = call_of(run, operation)
    assert (call["tool_type"], call["think_act_id"], call["inferred"]) == ("MEMORY", None, False)


@pytest.mark.parametrize(
    "written",
    [
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
    ],
)
def test_current_and_older_names_of_token_counts_are_read(written: str) -> None:
    usage = {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 60,
        written: 30,
        "gen_ai.usage.reasoning.output_tokens": 25,
    }
    run = projection_of(make_span(1, "chat m", {"gen_ai.operation.name": "chat", **usage}))

    (think_act,) = run.records[Kind.THINK_ACT].values()
    assert think_act["cache_read_tokens"] == 60
    assert think_act["cache_written_tokens"] == 30
    assert think_act["reasoning_tokens"] == 25


def test_mcp_server_span_completes_the_call_of_the_client() -> None:
    server = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "tide",
        "gen_ai.tool.call.arguments": '{"at": "Brest"}',
        "gen_ai.tool.call.result": "06:41",
        "mcp.session.id": "s",
        "mcp.protocol.version": "2026-07-28",
    }
    client = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "tide"}
    run = projection_of(
        agent(1, "a"),
        make_span(2, "tools/call tide", client, parent=1, kind=3, at=(1, 9)),
        make_span(3, "tools/call tide", server, parent=2, kind=2, at=(2, 8)),
        make_span(4, "resources/read", {"mcp.method.name": "resources/read"}, parent=1, at=(9, 10)),
    )

    call = call_of(run, "tide")
    assert (call["tool_type"], call["arguments"], call["result"]) == (
        "MCP",
        '{"at": "Brest"}',
        "06:41",
    )


def test_answer_in_two_attributes_and_costs_in_parts_are_read() -> None:
    chosen = [{"id": "c1", "type": "function", "function": {"name": "measure", "arguments": "{}"}}]
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.messages": '[{"role": "user", "content": "How is p-1?"}]',
        "gen_ai.response.text": "I will measure.",
        "gen_ai.response.tool_calls": json.dumps(chosen),
        "gen_ai.usage.input_cost": 2.45e-05,
        "gen_ai.usage.output_cost": "4.8e-06",
    }
    call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "measure"}
    run = projection_of(
        make_span(1, "chat m", asked, at=(0, 1)),
        make_span(2, "execute_tool measure", {**call, "gen_ai.tool.call.id": "c1"}, at=(1, 2)),
    )

    (think_act,) = run.records[Kind.THINK_ACT].values()
    assert think_act["thought"] == "I will measure."
    assert think_act["cost_usd"] == Decimal("0.0000293")
    assert the_call(run)["inferred"] is False
    assert run.records[Kind.PLAN][run.root_plan_id]["user_request"] == "How is p-1?"


def test_output_that_lists_tool_names_and_arguments_is_read() -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.output.type": "json"}
    listed = [{"tool.name": "now", "tool.args": {"tz": "Europe/Oslo"}}]
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "now",
        "gen_ai.tool.args": '{"tz":"Europe/Oslo"}',
        "gen_ai.output": "2026",
    }
    run = projection_of(
        make_span(1, "call_llm m", {**model, "gen_ai.output": json.dumps(listed)}, at=(0, 1)),
        make_span(2, "execute_tool now", tool, at=(1, 2)),
    )

    assert (the_call(run)["result"], the_call(run)["inferred"]) == ("2026", False)


USED = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 3}


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("chat.completions m", {**USED, "gen_ai.operation.name": "chat.completions"}, "round 3"),
        ("call_llm m", {**USED, "gen_ai.operation.name": "call_llm"}, "round 3"),
        ("completion m", {**USED, "gen_ai.operation.name": "Completion"}, "round 3"),
        ("langchain4j.completion", USED, "round 3"),
        ("llm_request", USED, "round 3"),
        ("generate", {**USED, "gen_ai.operation.name": "text_generation"}, "round 3"),
        ("tool", {"gen_ai.operation.name": "ExecuteTool", "gen_ai.tool.name": "t"}, "call t None"),
        ("tool", {"gen_ai.operation.name": "tool.execute", "gen_ai.tool.name": "t"}, "call t None"),
        ("tool", {"gen_ai.operation.name": "call", "gen_ai.tool.call.id": "c"}, "call tool None"),
    ],
)
def test_span_with_an_unlisted_operation_is_read_by_its_names(
    name: str, attributes: dict[str, Any], expected: str
) -> None:
    run = projection_of(make_span(1, name, attributes))

    assert [line.strip() for line in outline(run)][-1] == expected


@pytest.mark.parametrize("operation", ["run_agent", "agent.run", "InvokeAgent", "kickoff"])
def test_span_with_an_agents_name_around_model_calls_is_an_agent(operation: str) -> None:
    attributes = {"gen_ai.operation.name": operation, "gen_ai.agent.name": "planner"}
    chat = {**USED, "gen_ai.operation.name": "chat", "gen_ai.agent.name": "planner"}
    run = projection_of(
        make_span(1, "run", {**attributes, **USED}),
        make_span(2, "POST /v1/chat", {"gen_ai.agent.name": "planner"}, parent=1),
        make_span(3, "chat m", chat, parent=2),
    )

    assert outline(run) == ["plan planner", "  step planner", "    round 3"]


def test_answer_of_a_background_response_is_added_when_it_is_fetched() -> None:
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "It rains."}]}]
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.status": "queued",
        "gen_ai.request.previous_response.id": "resp_0",
        "gen_ai.prompt.name": "weather",
        "gen_ai.prompt.version": "3",
        "gen_ai.conversation.compacted": True,
    }
    fetched = {
        "gen_ai.operation.name": "fetch_response",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.status": "completed",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.output.messages": json.dumps(answer),
    }
    run = projection_of(
        agent(1, "a"),
        make_span(2, "chat m", asked, parent=1, at=(1, 2)),
        make_span(
            3, "fetch_response", {**fetched, "gen_ai.output.messages": ""}, parent=1, at=(3, 4)
        ),
        make_span(4, "fetch_response", fetched, parent=1, at=(5, 6)),
    )

    (row,) = run.records[Kind.THINK_ACT].values()
    assert (row["thought"], row["finish_reasons"]) == ("It rains.", ["stop"])
    assert json.loads(row["parameters"]) == {
        "previous_response_id": "resp_0",
        "conversation_compacted": True,
        "prompt_name": "weather",
        "prompt_version": "3",
    }


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_state_of_a_response_ends_its_model_call(state: str) -> None:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.response.status": state}
    (row,) = projection_of(make_span(1, "chat m", attributes)).records[Kind.THINK_ACT].values()
    assert row["status"] == state
