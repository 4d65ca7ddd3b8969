"""Conventions that are tables of names, each tested with spans as the emitter writes them."""

from __future__ import annotations

import json

from tests.otel.made_traces import make_span, outline, projection_of, the_call


def test_livekit_node_and_its_request_are_one_round_with_its_tool_call() -> None:
    scope = "livekit-agents"
    context = {"items": [{"type": "message", "role": "user", "content": ["How is p-1?"]}]}
    chosen = [{"id": "i1", "call_id": "c1", "name": "measure", "arguments": '{"p":"p-1"}'}]
    node = {
        "lk.chat_ctx": json.dumps(context),
        "lk.response.text": "",
        "lk.response.function_calls": json.dumps(chosen),
    }
    request = {"gen_ai.request.model": "gpt-5-mini", "gen_ai.usage.input_tokens": 500}
    call = {
        "lk.function_tool.name": "measure",
        "lk.function_tool.id": "c1",
        "lk.pii.function_tool.arguments": '{"p":"p-1"}',
        "lk.pii.function_tool.output": "121/79",
        "lk.function_tool.is_error": False,
    }
    run = projection_of(
        make_span(1, "agent_session", {"session.id": "room-1"}, scope=scope),
        make_span(2, "agent_turn", parent=1, scope=scope),
        make_span(3, "llm_node", node, parent=2, at=(1, 3), scope=scope),
        make_span(4, "llm_request", request, parent=3, at=(1, 2), scope=scope),
        make_span(5, "function_tool", call, parent=2, at=(3, 4), scope=scope),
    )

    assert outline(run) == [
        "plan agent_session",
        "  step agent_session",
        "    round 500",
        '      call measure {"p":"p-1"}',
    ]
    assert the_call(run)["result"] == "121/79"
    assert run.run["session_id"] == "room-1"


def test_spring_ai_tool_call_with_the_operation_framework_is_a_call() -> None:
    framework = {"gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}
    call = {
        **framework,
        "spring.ai.kind": "tool_call",
        "spring.ai.tool.definition.name": "measure",
        "spring.ai.tool.call.arguments": '{"p":"p-1"}',
        "spring.ai.tool.call.result": "121/79",
    }
    chat = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 500}
    run = projection_of(
        make_span(1, "spring_ai chat_client", {**framework, "spring.ai.kind": "chat_client"}),
        make_span(2, "chat gpt-5-mini", chat, parent=1, at=(1, 2)),
        make_span(3, "tool_call measure", call, parent=1, at=(2, 3)),
    )

    assert outline(run)[2:] == ["    round 500", '      call measure {"p":"p-1"} (inferred)']
    assert the_call(run)["result"] == "121/79"


def test_quarkus_tool_span_is_named_by_the_rest_of_its_name() -> None:
    scope = "io.quarkus.opentelemetry"
    run = projection_of(
        make_span(1, "langchain4j.aiservices.Bot.chat", scope=scope),
        make_span(2, "langchain4j.tools.weather", parent=1, at=(2, 3), scope=scope),
        make_span(3, "GET /forecast", parent=2, at=(2, 3), scope=scope),
    )

    assert the_call(run)["name"] == "weather"
