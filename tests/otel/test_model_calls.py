"""The request parameters and finish reasons of model calls, read from spans of each convention."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.otel.made_traces import make_span, projection_of
from tracer.records import Kind

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "The weather.", "parameters": SCHEMA}
OFFERED = json.dumps([FUNCTION], separators=(",", ":"))

GENAI: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.temperature": 0.2,
    "gen_ai.request.max_tokens": 100,
    "gen_ai.tool.definitions": json.dumps([{"type": "function", **FUNCTION}]),
    "gen_ai.response.finish_reasons": ["tool_calls"],
    "gen_ai.usage.input_tokens": 90,
    "gen_ai.usage.cache_read.input_tokens": 10,
    "gen_ai.usage.cache_write.input_tokens": 20,
    "gen_ai.usage.reasoning.output_tokens": 30,
    "gen_ai.response.time_to_first_chunk": 0.25,
}
OPENINFERENCE: dict[str, Any] = {
    "openinference.span.kind": "LLM",
    "llm.provider": "openai",
    "llm.invocation_parameters": json.dumps(
        {"model": "gpt-5", "temperature": 0.2, "max_tokens": 100, "stop": None, "tools": []}
    ),
    "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": FUNCTION}),
    "llm.finish_reason": "tool_calls",
    "llm.token_count.prompt": 90,
    "llm.token_count.prompt_details.cache_read": 10,
    "llm.token_count.prompt_details.cache_write": 20,
    "llm.token_count.completion_details.reasoning": 30,
}
OPENLLMETRY: dict[str, Any] = {
    "llm.request.type": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.temperature": 0.2,
    "gen_ai.request.max_tokens": 100,
    "llm.request.functions.0.name": "weather",
    "llm.request.functions.0.description": "The weather.",
    "llm.request.functions.0.parameters": json.dumps(SCHEMA),
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.finish_reason": "tool_calls",
    "gen_ai.usage.input_tokens": 90,
    "gen_ai.usage.cache_read_input_tokens": 10,
    "gen_ai.usage.cache_creation_input_tokens": 20,
    "gen_ai.usage.reasoning_tokens": 30,
}
VERCEL: dict[str, Any] = {
    "ai.operationId": "ai.streamText.doStream",
    "ai.model.provider": "openai",
    "ai.settings.temperature": 0.2,
    "ai.settings.max_tokens": 100,
    "ai.prompt.tools": [
        json.dumps(
            {
                "type": "function",
                "name": "weather",
                "description": "The weather.",
                "inputSchema": SCHEMA,
            }
        )
    ],
    "ai.response.finishReason": "tool_calls",
    "ai.usage.inputTokens": 90,
    "ai.usage.cachedInputTokens": 10,
    "ai.usage.inputTokenDetails.cacheWriteTokens": 20,
    "ai.usage.reasoningTokens": 30,
    "ai.response.msToFirstChunk": 250,
}


@pytest.mark.parametrize(
    ("name", "attributes", "tells_first_token"),
    [
        ("chat", GENAI, True),
        ("ChatOpenAI", OPENINFERENCE, False),
        ("openai.chat", OPENLLMETRY, False),
        ("ai.streamText.doStream", VERCEL, True),
    ],
)
def test_a_model_call_has_provider_parameters_tools_and_kinds_of_tokens(
    name: str, attributes: dict[str, Any], tells_first_token: bool
) -> None:
    run = projection_of(make_span(1, name, attributes, at=(1, 2)))
    (found,) = run.records[Kind.THINK_ACT].values()

    assert found["provider"] == "openai"
    assert json.loads(found["parameters"]) == {"temperature": 0.2, "max_tokens": 100}
    assert found["offered_tools"] == OFFERED
    assert found["finish_reasons"] == ["tool_calls"]
    assert (found["cache_read_tokens"], found["cache_written_tokens"]) == (10, 20)
    assert found["reasoning_tokens"] == 30
    first_token = found["first_token_at"]
    assert (first_token is not None) is tells_first_token
    if first_token is not None:
        assert (first_token - found["started_at"]).total_seconds() == 0.25


def test_equal_offered_tools_are_stored_once_per_run() -> None:
    others = {**GENAI, "gen_ai.tool.definitions": json.dumps([{"name": "search"}])}
    run = projection_of(
        make_span(1, "chat", GENAI, at=(1, 2)),
        make_span(2, "chat", others, at=(3, 4)),
        make_span(3, "chat", GENAI, at=(5, 6)),
    )
    first, other, again = sorted(
        run.records[Kind.THINK_ACT].items(), key=lambda item: item[1]["started_at"]
    )
    assert (first[1]["offered_tools"], first[1]["offered_tools_from"]) == (OFFERED, None)
    assert other[1]["offered_tools"] is not None
    assert (again[1]["offered_tools"], again[1]["offered_tools_from"]) == (None, first[0])


def test_separate_instructions_become_the_first_message() -> None:
    run = projection_of(
        make_span(
            1,
            "chat",
            {
                **GENAI,
                "gen_ai.system_instructions": '[{"type":"text","content":"Be brief."}]',
                "gen_ai.input.messages": '[{"role":"user","parts":[]}]',
            },
        )
    )
    (found,) = run.records[Kind.THINK_ACT].values()
    assert json.loads(found["messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": []},
    ]


def test_graph_node_of_a_model_call_is_recorded() -> None:
    node = {**OPENINFERENCE, "metadata": json.dumps({"langgraph_node": "model"})}
    (found,) = projection_of(make_span(1, "ChatOpenAI", node)).records[Kind.THINK_ACT].values()
    assert found["node"] == "model"


def test_model_call_that_starts_after_the_one_around_it_ended_is_its_own() -> None:
    asked = {"gen_ai.operation.name": "chat"}
    run = projection_of(
        make_span(1, "chat", {**asked, "gen_ai.usage.input_tokens": 100}, at=(1, 2)),
        make_span(2, "chat", {**asked, "gen_ai.usage.input_tokens": 200}, parent=1, at=(3, 4)),
        make_span(3, "chat", {**asked, "gen_ai.usage.input_tokens": 100}, parent=1, at=(1, 2)),
    )

    tokens = [each["input_tokens"] for each in run.records[Kind.THINK_ACT].values()]
    assert sorted(tokens) == [100, 200]


def answered(
    number: int,
    tokens: int | None,
    answer: str | None = None,
    *,
    parent: int | None = None,
    at: tuple[float, float] = (1, 9),
    answer_tokens: int = 1,
) -> dict[str, Any]:
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    if tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = tokens
        attributes["gen_ai.usage.output_tokens"] = answer_tokens
    if answer is not None:
        message = {"role": "assistant", "content": answer}
        attributes["gen_ai.output.messages"] = json.dumps([message])
    return make_span(number, "chat", attributes, parent=parent, at=at)


def tokens_of(*spans: dict[str, Any]) -> list[int | None]:
    rounds = projection_of(*spans).records[Kind.THINK_ACT].values()
    return sorted(each["input_tokens"] for each in rounds)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ((100, None), (100, None)),  # the same usage
        ((100, "Yes."), (90, "Yes.\n")),  # the same answer
        ((100, "Yes."), (None, None)),
        ((None, None), (100, "Yes.")),
    ],
)
def test_nested_spans_of_one_model_call_are_one_round(outer: Any, inner: Any) -> None:
    assert tokens_of(answered(1, *outer), answered(2, *inner, parent=1, at=(2, 8))) == [100]


def test_model_call_inside_another_with_other_usage_and_answer_is_its_own() -> None:
    spans = answered(1, 100, "Yes."), answered(2, 30, "It is safe.", parent=1, at=(2, 3))
    assert tokens_of(*spans) == [30, 100]


def test_model_calls_that_the_span_around_them_sums_are_its_calls() -> None:
    spans = (
        answered(1, 300, "Yes.", answer_tokens=2),
        answered(2, 100, "", parent=1, at=(2, 3)),
        answered(3, 200, "Yes.", parent=1, at=(4, 5)),
    )
    assert tokens_of(*spans) == [100, 200]
