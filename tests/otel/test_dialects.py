"""Conventions that no capture uses, each tested with a handwritten trace."""

from __future__ import annotations

import json
from typing import Any

from tests.otel.made_traces import make_span, outline, projection_of, the_call
from tests.otel.projections import Projected
from tracer.records import Kind

QUESTION = "when is the tide lowest?"
TOOL_CALLS = [{"toolCallId": "t1", "toolName": "ask", "args": {"question": QUESTION}}]


def the_round(run: Projected) -> dict[str, Any]:
    (think_act,) = run.records[Kind.THINK_ACT].values()
    return think_act


def test_vercel_generate_text_is_an_agent_and_do_generate_a_round() -> None:
    run = projection_of(
        make_span(
            1,
            "ai.generateText",
            {
                "ai.operationId": "ai.generateText",
                "ai.telemetry.functionId": "planner",
                "ai.prompt": json.dumps({"prompt": "Plan a day"}),
                "ai.usage.promptTokens": 30,
                "ai.response.text": "Go to Brest",
            },
            at=(0, 10),
        ),
        make_span(
            2,
            "ai.generateText.doGenerate",
            {
                "ai.operationId": "ai.generateText.doGenerate",
                "ai.prompt.messages": json.dumps([{"role": "user", "content": "Plan a day"}]),
                "ai.response.toolCalls": json.dumps(TOOL_CALLS),
                "ai.usage.promptTokens": 30,
                "ai.usage.completionTokens": 4,
                "gen_ai.system": "openai",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.usage.input_tokens": 30,
            },
            parent=1,
            at=(0, 1),
        ),
        make_span(
            3,
            "ai.toolCall",
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": "ask",
                "ai.toolCall.id": "t1",
                "ai.toolCall.args": json.dumps({"question": QUESTION}),
                "ai.toolCall.result": '"06:41"',
            },
            parent=1,
            at=(1, 9),
        ),
        make_span(
            4, "ai.streamText", {"ai.telemetry.functionId": "researcher"}, parent=3, at=(2, 8)
        ),
        make_span(
            5,
            "ai.streamText.doStream",
            {"ai.usage.inputTokens": 7, "ai.prompt.messages": "[]"},
            parent=4,
            at=(2, 3),
        ),
    )

    assert outline(run) == [
        "plan planner",
        "  step planner",
        "    round 30",
        f'      call ask {{"question": "{QUESTION}"}}',
        "        plan researcher",
        "          step researcher",
        "            round 7",
    ]
    plan = run.records[Kind.PLAN][run.root_plan_id]
    assert (plan["user_request"], plan["summary"]) == ("Plan a day", "Go to Brest")


def test_mcp_spans_below_a_tool_span_merge_into_its_call() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search", "jsonrpc.request.id": "1"}
    run = projection_of(
        make_span(1, "invoke_agent a", {"gen_ai.operation.name": "invoke_agent"}),
        make_span(2, "execute_tool search", tool, parent=1),
        make_span(3, "tools/call search", mcp, parent=2, kind=3),
        make_span(4, "tools/call search", mcp, parent=3, kind=2),
        make_span(5, "tools/list", {"mcp.method.name": "tools/list"}, parent=1),
    )

    assert outline(run) == ["plan a", "  step a", "    call mcp search None"]
    assert run.record_of[bytes(7) + b"\4"] == run.record_of[bytes(7) + b"\2"]


def test_mcp_span_without_a_tool_span_becomes_the_tool_call() -> None:
    mcp = {"mcp.method.name": "tools/call", "error.type": "tool_error"}
    run = projection_of(
        make_span(1, "invoke_agent a", {"gen_ai.operation.name": "invoke_agent"}),
        make_span(2, "tools/call search", mcp, parent=1, kind=3),
    )

    assert outline(run) == ["plan a", "  step a", "    call mcp search None failed"]


def test_older_genai_spellings_are_read() -> None:
    run = projection_of(
        make_span(
            1,
            "openai.chat",
            {
                "llm.request.type": "chat",
                "gen_ai.system": "openai",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.prompt.0.role": "system",
                "gen_ai.prompt.0.content": "Be brief",
                "gen_ai.prompt.1.role": "user",
                "gen_ai.prompt.1.content": "Plan a day",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "Asking",
                "gen_ai.completion.0.tool_calls.0.id": "c1",
                "gen_ai.completion.0.tool_calls.0.name": "ask",
                "gen_ai.completion.0.tool_calls.0.arguments": '{"a":1}',
                "gen_ai.usage.prompt_tokens": 5,
                "gen_ai.usage.completion_tokens": 6,
            },
            at=(0, 1),
        ),
        make_span(
            2,
            "execute_tool ask",
            {"gen_ai.tool.name": "ask", "gen_ai.tool.call.id": "c1"},
            at=(1, 2),
        ),
    )

    think_act = the_round(run)
    assert (think_act["input_tokens"], think_act["output_tokens"]) == (5, 6)
    assert (think_act["model"], think_act["requested_model"]) == (None, "gpt-4o")
    assert think_act["thought"] == "Asking"
    assert [message["role"] for message in json.loads(think_act["messages"])] == ["system", "user"]
    assert (the_call(run)["arguments"], the_call(run)["inferred"]) == ('{"a":1}', False)


def test_messages_in_span_events_are_read() -> None:
    tool_call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "ask", "arguments": '{"a":1}'},
    }
    run = projection_of(
        make_span(
            1,
            "chat gpt-4o",
            {"gen_ai.operation.name": "chat"},
            events=[
                {"name": "gen_ai.user.message", "attributes": {"content": "Plan a day"}},
                {
                    "name": "gen_ai.choice",
                    "attributes": {
                        "message": json.dumps({"role": "assistant", "tool_calls": [tool_call]})
                    },
                },
            ],
        ),
        make_span(2, "execute_tool ask", {"gen_ai.tool.call.arguments": '{"a": 1}'}, at=(1, 2)),
    )

    plan = run.records[Kind.PLAN][run.root_plan_id]
    assert plan["user_request"] == "Plan a day"
    assert (the_call(run)["provider_call_id"], the_call(run)["inferred"]) == ("c1", False)


def test_pydantic_ai_format_version_2_is_read() -> None:
    events = [
        {"event.name": "gen_ai.user.message", "content": "Plan a day", "role": "user"},
        {
            "event.name": "gen_ai.choice",
            "message": {
                "role": "assistant",
                "tool_calls": [{"id": "c", "function": {"name": "ask", "arguments": '{"q":"x"}'}}],
            },
        },
    ]
    run = projection_of(
        make_span(
            1,
            "agent run",
            {"agent_name": "planner", "model_name": "m", "gen_ai.usage.input_tokens": 9},
            scope="pydantic-ai",
        ),
        make_span(
            2,
            "chat m",
            {
                "gen_ai.operation.name": "chat",
                "events": json.dumps(events),
                "gen_ai.usage.input_tokens": 9,
            },
            parent=1,
            at=(0, 1),
        ),
        make_span(3, "running 1 tool", {"tools": ["ask"]}, parent=1, at=(1, 3)),
        make_span(
            4,
            "running tool",
            {
                "gen_ai.tool.name": "ask",
                "gen_ai.tool.call.id": "c",
                "tool_arguments": '{"q":"x"}',
                "tool_response": "y",
            },
            parent=3,
            at=(1, 2),
        ),
    )

    assert outline(run) == [
        "plan planner",
        "  step planner",
        "    round 9",
        '      call ask {"q":"x"}',
    ]
    assert the_call(run)["result"] == "y"
    assert run.records[Kind.PLAN][run.root_plan_id]["user_request"] == "Plan a day"


def test_older_google_adk_attributes_are_read() -> None:
    llm = {"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini"}
    response = {
        "content": {
            "role": "model",
            "parts": [{"function_call": {"name": "ask", "args": {"a": 1}}}],
        }
    }
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask"}
    run = projection_of(
        make_span(1, "invocation", scope="gcp.vertex.agent"),
        make_span(2, "agent_run [planner]", parent=1, scope="gcp.vertex.agent"),
        make_span(
            3,
            "call_llm",
            {
                **llm,
                "gcp.vertex.agent.llm_request": json.dumps(
                    {"contents": [{"role": "user", "parts": [{"text": "Plan a day"}]}]}
                ),
                "gcp.vertex.agent.llm_response": json.dumps(response),
                "gen_ai.usage.input_tokens": 4,
            },
            parent=2,
            scope="gcp.vertex.agent",
        ),
        make_span(
            4,
            "generate_content gemini",
            {"gen_ai.operation.name": "generate_content", "gen_ai.usage.input_tokens": 4},
            parent=3,
            scope="gcp.vertex.agent",
        ),
        make_span(
            5,
            "execute_tool ask",
            {
                **tool,
                "gcp.vertex.agent.tool_call_args": '{"a": 1}',
                "gcp.vertex.agent.tool_response": '{"result":"y"}',
                "gen_ai.tool.call.id": "<not specified>",
            },
            parent=3,
            at=(1, 2),
            scope="gcp.vertex.agent",
        ),
        make_span(
            6,
            "execute_tool (merged)",
            {**tool, "gen_ai.tool.name": "(merged tools)", "gen_ai.tool.call.id": "event"},
            parent=3,
            at=(2, 2),
            scope="gcp.vertex.agent",
        ),
    )

    assert outline(run) == [
        "plan planner",
        "  step planner",
        "    round 4",
        '      call ask {"a": 1}',
    ]
    assert the_call(run)["provider_call_id"] is None
    assert run.records[Kind.PLAN][run.root_plan_id]["user_request"] == "Plan a day"


def test_spans_within_a_claude_code_tool_are_no_calls() -> None:
    scope = "com.anthropic.claude_code.tracing"
    model = {"model": "m", "input_tokens": 3}
    run = projection_of(
        make_span(1, "claude_code.interaction", {"session.id": "s"}, scope=scope),
        make_span(2, "claude_code.llm_request", model, parent=1, at=(0, 1), scope=scope),
        make_span(3, "claude_code.tool", {"tool_name": "Bash"}, parent=1, at=(1, 2), scope=scope),
        make_span(4, "claude_code.tool.execution", {}, parent=3, at=(1, 2), scope=scope),
    )

    assert outline(run) == [
        "plan claude_code",
        "  step claude_code",
        "    round 3",
        "      call Bash None (inferred)",
    ]
    assert run.run["session_id"] == "s"


def test_logfire_log_line_is_never_a_round() -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3}
    run = projection_of(
        make_span(1, "chat m", said),
        make_span(2, "streamed", {**said, "logfire.span_type": "log"}, parent=1, at=(2, 2)),
        make_span(3, "said", {**said, "logfire.span_type": "log"}, at=(3, 3)),
    )

    assert the_round(run)["input_tokens"] == 3
