"""OpenInference and OpenLLMetry, including their spans of LangChain."""

from __future__ import annotations

import json

from tests.otel.made_traces import chat, make_span, outline, projection_of, the_call, tool
from tracer.records import Kind


def test_openllmetry_arguments_of_langchain_tools_are_unwrapped() -> None:
    envelope = {"input_str": "{}", "tags": [], "inputs": {"q": "x"}, "kwargs": {}}
    answer = {
        "output": {"lc": 1, "kwargs": {"content": "503", "status": "error", "tool_call_id": "c"}}
    }
    run = projection_of(
        make_span(1, "planner.workflow", {"traceloop.span.kind": "workflow"}),
        make_span(2, "tools.task", {"traceloop.span.kind": "task"}, parent=1),
        make_span(
            3,
            "search.tool",
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "search",
                "traceloop.entity.input": json.dumps(envelope),
                "traceloop.entity.output": json.dumps(answer),
            },
            parent=2,
        ),
    )

    call = the_call(run)
    assert (call["name"], call["arguments"], call["result"]) == ("search", '{"q":"x"}', "503")
    assert (call["status"].value, call["provider_call_id"]) == ("failed", "c")


def test_langchain_workflow_inside_its_agent_is_the_same_agent() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    run = projection_of(
        make_span(1, "create_agent planner", {"gen_ai.operation.name": "create_agent"}, at=(0, 1)),
        make_span(2, "invoke_agent planner", agent, at=(1, 9)),
        make_span(3, "planner.workflow", {**agent, "traceloop.span.kind": "workflow"}, parent=2),
        make_span(4, "execute_task model", {"gen_ai.operation.name": "execute_task"}, parent=3),
        make_span(
            5,
            "ChatOpenAI.chat",
            {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3},
            parent=4,
        ),
    )

    assert outline(run) == ["plan planner", "  step planner", "    round 3"]


def test_fields_of_a_sibling_span_that_names_the_agent_are_merged() -> None:
    said = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "b",
        "gen_ai.conversation.id": "s",
        "user.id": "u",
        "gen_ai.input.messages": '[{"role": "user", "content": "tides"}]',
    }
    work = {
        "gen_ai.operation.name": "execute_task",
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "b",
    }
    run = projection_of(
        tool(1, "ask", at=(0, 9)),
        make_span(2, "invoke_agent b", said, parent=1, at=(1, 9)),
        make_span(3, "execute_task b", work, parent=1, at=(2, 9)),
        chat(4, parent=3, at=(2, 3)),
        tool(5, "search", parent=3, at=(3, 4)),
    )

    requests = {
        plan["agent_name"]: plan["user_request"] for plan in run.records[Kind.PLAN].values()
    }
    assert run.run == {"session_id": "s", "subject": "u"}
    assert requests["b"] == "tides"


def test_openllmetry_agent_span_and_its_task_span_are_one_agent() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "b"}
    work = {
        "gen_ai.operation.name": "execute_task",
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "b",
    }
    chat = {"gen_ai.operation.name": "chat"}
    tool = {"gen_ai.operation.name": "execute_tool"}
    run = projection_of(
        make_span(1, "execute_tool ask", tool, at=(0, 9)),
        make_span(2, "invoke_agent b", agent, parent=1, at=(1, 9)),
        make_span(3, "execute_task b", work, parent=1, at=(2, 9)),
        make_span(4, "chat", {**chat, "gen_ai.usage.input_tokens": 3}, parent=3, at=(2, 3)),
        make_span(5, "execute_tool search", tool, parent=3, at=(3, 4)),
        make_span(6, "invoke_agent b", agent, parent=1, at=(5, 9)),
        make_span(7, "execute_task b", work, parent=1, at=(6, 9)),
        make_span(8, "chat", {**chat, "gen_ai.usage.input_tokens": 4}, parent=7, at=(6, 7)),
        make_span(9, "execute_tool search", tool, parent=7, at=(7, 8)),
    )

    assert [line.strip() for line in outline(run)[2:]] == [
        "call ask None",
        "plan b",
        "step b",
        "round 3",
        "call search None (inferred)",
        "plan b",
        "step b",
        "round 4",
        "call search None (inferred)",
    ]


def test_calls_sent_as_python_repr_are_parsed() -> None:
    """`openai-agents-v2`, whose whole workflow is an agent without a name."""
    scope = "opentelemetry.instrumentation.openai_agents"
    given = """arguments='{"q": "x"}', call_id='c1', name='search', caller=None"""
    shown = f"ResponseFunctionToolCall({given})"
    parts = [{"type": "text", "content": shown}]
    said = json.dumps([{"role": "assistant", "parts": parts}])
    chat = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    agent = {"gen_ai.operation.name": "invoke_agent"}
    run = projection_of(
        make_span(1, "Agent workflow", agent, scope=scope),
        make_span(2, "invoke_agent a", {**agent, "gen_ai.agent.name": "a"}, parent=1, scope=scope),
        make_span(3, "chat", chat, parent=2, at=(0, 1), scope=scope),
        make_span(4, "chat", {"gen_ai.operation.name": "chat"}, parent=2, at=(1, 2), scope=scope),
        make_span(
            5,
            "execute_tool search",
            {**tool, "gen_ai.tool.call.arguments": '{"q":"x"}'},
            parent=2,
            at=(3, 4),
            scope=scope,
        ),
    )

    assert outline(run)[:4] == [
        "plan a",
        "  step a",
        "    round None",
        '      call search {"q":"x"}',
    ]
    assert the_call(run)["provider_call_id"] == "c1"
    assert not any(each["thought"] for each in run.records[Kind.THINK_ACT].values())


def test_tool_with_an_error_answer_fails_despite_ok_status() -> None:
    message = {"content": "503", "type": "tool", "tool_call_id": "c1", "status": "error"}
    run = projection_of(
        make_span(
            1,
            "tools",
            {
                "openinference.span.kind": "CHAIN",
                "input.value": json.dumps([{"name": "search", "args": {"q": "x"}, "id": "c1"}]),
            },
        ),
        make_span(
            2,
            "search",
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "search",
                "input.value": "x",
                "output.value": json.dumps({"type": "tool", "data": message}),
            },
            parent=1,
        ),
    )

    call = the_call(run)
    assert (call["status"].value, call["reason"], call["error_message"]) == (
        "failed",
        "tool_error",
        "503",
    )
    assert (call["arguments"], call["provider_call_id"]) == ('{"q":"x"}', "c1")


def test_langgraph_without_named_agents_has_a_sub_plan_under_the_tool() -> None:
    chain, llm, tool = ({"openinference.span.kind": kind} for kind in ("CHAIN", "LLM", "TOOL"))
    run = projection_of(
        make_span(1, "LangGraph", chain),
        make_span(2, "agent", chain, parent=1, at=(0, 1)),
        make_span(3, "ChatOpenAI", {**llm, "llm.token_count.prompt": 1}, parent=2, at=(0, 1)),
        make_span(4, "ask", {**tool, "input.value": "{'a': 1, 'b': 'x'}"}, parent=1, at=(1, 9)),
        make_span(5, "LangGraph", chain, parent=4, at=(2, 8)),
        make_span(6, "agent", chain, parent=5, at=(2, 3)),
        make_span(7, "ChatOpenAI", {**llm, "llm.token_count.prompt": 2}, parent=6, at=(2, 3)),
        make_span(8, "search", tool, parent=5, at=(3, 4)),
    )

    assert outline(run) == [
        "plan LangGraph",
        "  step LangGraph",
        "    round 1",
        '      call ask {"a":1,"b":"x"} (inferred)',
        "        plan LangGraph",
        "          step LangGraph",
        "            round 2",
        "              call search None (inferred)",
    ]


def test_retrievers_embeddings_rerankers_and_guardrails_are_typed_calls() -> None:
    kinds = ("RETRIEVER", "EMBEDDING", "RERANKER", "GUARDRAIL")
    run = projection_of(
        make_span(1, "a", {"openinference.span.kind": "AGENT", "agent.name": "a"}),
        *(
            make_span(n, f"x{n}", {"openinference.span.kind": kind}, parent=1, at=(n, n + 1))
            for n, kind in enumerate(kinds, start=2)
        ),
        make_span(8, "embeddings e", {"gen_ai.operation.name": "embeddings"}, parent=1, at=(8, 9)),
    )

    kept = run.records[Kind.TOOL_CALL].values()
    assert [call["tool_type"] for call in kept] == [*kinds, "EMBEDDING"]


def test_value_redacted_by_the_emitter_is_null() -> None:
    run = projection_of(
        make_span(
            1,
            "search",
            {"openinference.span.kind": "TOOL", "input.value": "__REDACTED__"},
        )
    )

    assert the_call(run)["arguments"] is None


def test_arguments_that_only_resemble_langchain_syntax_are_kept_unchanged() -> None:
    sent = ["{{}}", '{{"a": 1}}', "{[1]}", "{'a'", "{'a': {'b'}}"]
    called = {"openinference.span.kind": "TOOL", "tool.name": "fill"}
    calls = [
        the_call(projection_of(make_span(1, "f", {**called, "input.value": each}))) for each in sent
    ]

    assert [call["arguments"] for call in calls] == sent


def test_malformed_python_repr_is_read_as_text_quickly() -> None:
    said = f"ResponseFunctionToolCall(name='search', arguments=0x{'f' * 9000})"
    parts = [{"type": "text", "content": said}]
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
    }
    run = projection_of(
        make_span(1, "chat", chat, at=(0, 1)),
        make_span(
            2,
            "execute_tool search",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
            at=(2, 3),
        ),
    )

    assert the_call(run)["arguments"] is None
