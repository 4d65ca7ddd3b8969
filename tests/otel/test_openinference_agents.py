"""OpenInference agents with few attributes: smolagents, CrewAI, LlamaIndex, Haystack, LangChain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.otel.made_traces import make_span, outline, projection_of, the_call
from tests.otel.projections import Projected
from tracer.records import Kind

SCOPE = "openinference.instrumentation."
CALLS = {
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "call_0",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"q": "x"}',
}


def of_kind(kind: str, **attributes: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in attributes.items()}
    return {"openinference.span.kind": kind, **named}


def model(number: int, tokens: int, more: dict[str, Any] | None = None, **at: Any) -> Any:
    said = {"llm.token_count.prompt": tokens, **(more or {})}
    return make_span(number, "ChatCompletion", {**of_kind("LLM"), **said}, **at)


def plans(run: Projected) -> list[tuple[Any, ...]]:
    found = sorted(run.records[Kind.PLAN].values(), key=lambda plan: plan["started_at"])
    return [(plan["agent_name"], plan["user_request"], plan["summary"]) for plan in found]


def test_agent_named_only_by_its_span_is_a_sub_agent() -> None:
    spellings = [
        ("AGENT", ("planner.run", "researcher.run"), ("planner", "researcher")),
        ("AGENT", ("planner._execute_core", "researcher._execute_core"), ("planner", "researcher")),
        ("AGENT", ("planner", "researcher"), ("planner", "researcher")),
        ("CHAIN", ("Agent.run", "Agent.run"), ("Agent", "Agent")),
        ("CHAIN", ("FunctionAgent.run", "ReActAgent.run"), ("FunctionAgent", "ReActAgent")),
    ]
    for kind, names, titles in spellings:
        run = projection_of(
            make_span(1, names[0], of_kind(kind)),
            model(2, 10, parent=1, at=(0, 1)),
            make_span(3, "Step 1", of_kind("CHAIN"), parent=1, at=(1, 9)),
            make_span(4, names[1], of_kind(kind), parent=3, at=(2, 8)),
            model(5, 20, parent=4, at=(2, 3)),
            make_span(6, names[1], of_kind(kind), parent=3, at=(3, 8)),
            model(7, 30, parent=6, at=(3, 4)),
        )

        assert outline(run) == [
            f"plan {titles[0]}",
            f"  step {titles[0]}",
            "    round 10",
            f"    plan {titles[1]}",
            f"      step {titles[1]}",
            "        round 20",
            f"    plan {titles[1]}",
            f"      step {titles[1]}",
            "        round 30",
        ], names


def test_openai_agents_workflow_span_is_not_an_agent() -> None:
    run = projection_of(
        make_span(1, "Agent workflow", of_kind("AGENT"), scope=SCOPE + "openai_agents"),
        make_span(2, "planner", of_kind("AGENT", agent_name="planner"), parent=1),
        model(3, 10, parent=2),
        model(4, 20, parent=1, at=(50, 60)),
    )

    assert outline(run)[:3] == ["plan planner", "  step planner", "    round 10"]


def test_smolagents_wrapper_arguments_are_removed() -> None:
    given = {"args": [], "sanitize_inputs_outputs": True, "kwargs": {"q": "x"}}
    run = projection_of(
        make_span(
            1, "planner.run", of_kind("AGENT", input_value='{"task": "Plan", "stream": false}')
        ),
        model(2, 10, CALLS, parent=1, at=(0, 1)),
        model(3, 11, parent=1, at=(1, 2)),
        make_span(
            4,
            "T",
            of_kind("TOOL", tool_name="search", input_value=json.dumps(given)),
            parent=1,
            at=(3, 4),
        ),
    )

    assert outline(run)[2:4] == ["    round 10", '      call search {"q":"x"}']
    assert the_call(run)["provider_call_id"] == "call_0"
    assert run.records[Kind.PLAN][run.root_plan_id]["user_request"] == "Plan"


def test_llamaindex_tool_answers_are_unwrapped() -> None:
    shown = "ChatMessage(role=<MessageRole.SYSTEM: 'system'>, blocks=[TextBlock(text='Be short')])"
    answer = {
        "blocks": [{"text": "no tide"}],
        "tool_name": "search",
        "raw_output": "no tide",
        "is_error": True,
    }
    asked = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Plan",
    }
    run = projection_of(
        make_span(1, "FunctionAgent.run", of_kind("CHAIN", output_value="StopEvent(result=…)")),
        make_span(
            2,
            "OpenAILike._prepare_chat_with_tools",
            of_kind("LLM", input_value=json.dumps({"messages": [shown]})),
            parent=1,
            at=(0, 1),
        ),
        model(3, 10, {**CALLS, "input.value": json.dumps({"messages": [shown]})}, parent=1),
        make_span(
            4,
            "FunctionTool.acall",
            of_kind("TOOL", tool_name="search", output_value=json.dumps(answer)),
            parent=1,
            at=(2, 3),
        ),
        model(5, 11, asked, parent=1, at=(4, 5)),
    )

    call = the_call(run)
    assert [line for line in outline(run) if "round" in line] == ["    round 10", "    round 11"]
    assert (call["result"], call["status"].value) == ("no tide", "failed")
    assert plans(run) == [("FunctionAgent", "Plan", None)]


def test_langchain_messages_may_be_pairs_of_role_and_text() -> None:
    created = json.dumps({"ls_integration": "langchain_create_agent"})
    user = ["user", "Plan"]
    for messages in (user, [user], [["system", "s"], user]):
        state = json.dumps({"messages": messages, "task": "what the state keeps"})
        run = projection_of(
            make_span(1, "planner", of_kind("CHAIN", metadata=created, input_value=state))
        )

        assert plans(run) == [("planner", "Plan", None)], messages


def node(
    number: int, name: str, above: str | None = None, *, by: str = "openai_agents", **where: Any
) -> dict[str, Any]:
    said = {**of_kind("AGENT"), "agent.name": name, "graph.node.id": name}
    if above is not None:
        said["graph.node.parent_id"] = above
    return make_span(number, name, said, scope=SCOPE + by, **where)


@pytest.mark.parametrize("is_called", [True, False])
def test_agent_after_a_hand_off_is_below_the_agent_that_handed_off(
    is_called: bool,
) -> None:
    handing = of_kind("TOOL", input_value="triage", output_value="expert")
    other = of_kind("TOOL", tool_name="search")
    run = projection_of(
        make_span(1, "Agent workflow", of_kind("AGENT"), scope=SCOPE + "openai_agents"),
        node(2, "triage", parent=1, at=(0, 3)),
        make_span(3, "handoff to expert", handing if is_called else other, parent=2, at=(2, 3)),
        node(4, "expert", "triage", parent=1, at=(4, 6)),
        node(5, "triage", "expert", parent=1, at=(7, 9)),
    )

    below = "    " if is_called else "  "
    assert outline(run)[3:] == [
        below + "  plan expert (inferred)",
        below + "    step expert",
        below + "      plan triage (inferred)",
        below + "        step triage",
    ]


def test_hand_off_without_a_call_in_the_trace_is_recognized() -> None:
    run = projection_of(
        node(2, "triage", parent=1, at=(0, 3)),
        node(4, "expert", "triage", parent=1, at=(4, 6)),
        make_span(1, "both"),
    )

    assert outline(run)[:3] == ["plan triage", "  step triage", "    plan expert (inferred)"]


@pytest.mark.parametrize("others", [[(1, 3)], [(0, 9), (1, 2)]])
def test_ambiguous_hand_off_is_not_inferred(
    others: list[tuple[float, float]],
) -> None:
    run = projection_of(
        make_span(1, "both"),
        *(node(10 + n, "triage", parent=1, at=at) for n, at in enumerate(others)),
        node(3, "triage", parent=1, at=(2, 3)),
        make_span(4, "search", of_kind("TOOL"), parent=3, at=(2, 3)),
        node(5, "expert", "triage", parent=1, at=(4, 6)),
    )

    assert not any(plan["inferred"] for plan in run.records[Kind.PLAN].values())


@pytest.mark.parametrize("by", ["crewai", "autogen_agentchat"])
def test_previous_agent_of_a_crew_is_not_the_opener(by: str) -> None:
    run = projection_of(
        make_span(1, "crew.kickoff", of_kind("CHAIN"), scope=SCOPE + by),
        node(2, "analyst", parent=1, at=(0, 3), by=by),
        make_span(3, "search", of_kind("TOOL", tool_name="search"), parent=2, at=(1, 2)),
        node(4, "writer", "analyst", parent=1, at=(4, 6), by=by),
    )

    assert [line for line in outline(run) if "plan" in line] == [
        "plan crew.kickoff",
        "    plan analyst",
        "    plan writer",
    ]


def of_langchain(number: int, name: str, kind: str, **more: Any) -> dict[str, Any]:
    said = more.pop("said", {})
    return make_span(number, name, {**of_kind(kind), **said}, scope=SCOPE + "langchain", **more)


def test_langchain_node_with_agent_in_its_name_is_no_agent() -> None:
    """The nodes of a graph are mostly named so; LangChain's instrumentation looks at no more."""
    called = {"tool.name": "search", "input.value": '{"q": "x"}'}
    run = projection_of(
        of_langchain(1, "LangGraph", "CHAIN"),
        of_langchain(2, "agent", "AGENT", parent=1, at=(0, 2)),
        model(3, 10, CALLS, parent=2, at=(0, 1)),
        of_langchain(4, "tools", "CHAIN", parent=1, at=(2, 4)),
        of_langchain(5, "search", "TOOL", parent=4, at=(2, 3), said=called),
        of_langchain(6, "agent", "AGENT", parent=1, at=(4, 6)),
        model(7, 11, parent=6, at=(4, 5)),
    )

    assert outline(run) == [
        "plan LangGraph",
        "  step LangGraph",
        "    round 10",
        '      call search {"q": "x"}',
        "    round 11",
    ]


def test_langchain_tool_with_agent_in_its_name_is_a_call() -> None:
    created = {"metadata": json.dumps({"ls_integration": "langchain_create_agent"})}
    asked = {"tool.name": "ask_agent", "input.value": "tides"}
    run = projection_of(
        of_langchain(1, "my_agent", "AGENT", said=created),
        model(2, 10, parent=1, at=(0, 1)),
        of_langchain(3, "ask_agent", "AGENT", parent=1, at=(2, 9), said=asked),
        of_langchain(4, "expert", "CHAIN", parent=3, at=(3, 9), said=created),
        model(5, 11, parent=4, at=(3, 4)),
    )

    assert outline(run) == [
        "plan my_agent",
        "  step my_agent",
        "    round 10",
        "      call ask_agent tides (inferred)",
        "        plan expert",
        "          step expert",
        "            round 11",
    ]
