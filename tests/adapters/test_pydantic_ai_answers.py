"""pydantic-ai: which tool calls of a model's answer are recorded, and with which status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    TextOutput,
    ToolDenied,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.adapters.outline import calls_of, outline
from tests.adapters.pydantic_ai_agents import calls, installed, scripted
from tests.adapters.recording import RecordedStore, tree_of, trees_of


@pytest.fixture
def store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[RecordedStore]:
    with installed(tmp_path, caplog) as (_, store):
        yield store


def double(x: int) -> int:
    return 2 * x


async def test_deferred_call_is_recorded_in_the_run_that_approves_it(
    store: RecordedStore,
) -> None:
    chosen = calls(("careful", "{}", "c1"), ("double", '{"x":1}', "c2"))
    agent = Agent(
        scripted(chosen, "done"),
        name="agent",
        output_type=[str, DeferredToolRequests],
        tools=[double],
    )

    @agent.tool_plain(requires_approval=True)
    def careful() -> str:
        return "did it"

    asked = await agent.run("hi")
    for approval in (True, ToolDenied("not today")):
        await agent.run(
            message_history=asked.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"c1": approval}),
        )

    first, approved, denied = [outline(each) for each in await trees_of(store)]
    assert first == [
        "plan of agent: succeeded",
        "  round: succeeded",
        "    careful({}): cancelled (deferred)",
        '    double({"x":1}): succeeded',
    ]
    assert approved == [
        "plan of agent: succeeded",
        "  round: succeeded",
        "  careful({}): succeeded",
    ]
    assert denied == ["plan of agent: succeeded", "  round: succeeded"]


async def test_call_approved_in_the_same_run_is_recorded_as_a_second_attempt(
    store: RecordedStore,
) -> None:
    def decide(ctx: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(approvals={"c1": True, "c2": ToolDenied("not today")})

    def careful(ctx: RunContext[None], x: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "did it"

    chosen = calls(("careful", '{"x":1}', "c1"), ("careful", '{"x":2}', "c2"))
    capabilities = [HandleDeferredToolCalls(handler=decide)]
    agent = Agent(
        scripted(chosen, "done"), name="agent", tools=[careful], capabilities=capabilities
    )
    await agent.run("hi")

    tree = await tree_of(store)
    assert outline(tree)[2:4] == [
        '    careful({"x":1}): succeeded',
        '    careful({"x":2}): failed (denied)',
    ]
    assert [call["attempt"] for call in calls_of(tree)] == [2, 1]


async def test_output_tool_is_recorded_as_a_call_only_if_it_runs_a_function(
    store: RecordedStore,
) -> None:
    class Answer(BaseModel):
        text: str

    def shout(text: str) -> str:
        return text.upper()

    given = calls(("final_result", '{"text":"a"}', "c1"))
    wrong = calls(("final_result", "{}", "c1"))
    await Agent(scripted(wrong, given), name="agent", output_type=Answer).run("hi")
    await Agent(scripted(given), name="agent", output_type=shout).run("hi")
    await Agent(scripted("a"), name="agent", output_type=TextOutput(shout)).run("hi")

    assert [outline(each) for each in await trees_of(store)] == [
        ["plan of agent: succeeded", "  round: succeeded", "  round: succeeded"],
        [
            "plan of agent: succeeded",
            "  round: succeeded",
            '    final_result({"text":"a"}): succeeded',
        ],
        ["plan of agent: succeeded", "  round: succeeded", "    shout(a): succeeded"],
    ]


async def test_tool_call_skipped_after_the_final_result_is_not_reached(
    store: RecordedStore,
) -> None:
    class Answer(BaseModel):
        text: str

    chosen = calls(("double", '{"x":1}', "c1"), ("final_result", '{"text":"a"}', "c2"))
    agent = Agent(
        scripted(chosen), name="agent", output_type=Answer, tools=[double], end_strategy="early"
    )
    await agent.run("hi")

    assert outline(await tree_of(store))[2:] == ['    double({"x":1}): cancelled (not_reached)']


async def test_run_over_its_usage_limit_fails_with_budget_exhausted(store: RecordedStore) -> None:
    chosen = calls(("double", '{"x":1}', "c1"))
    agent = Agent(scripted(chosen, "done"), name="agent", tools=[double])

    with pytest.raises(UsageLimitExceeded):
        await agent.run("hi", usage_limits=UsageLimits(request_limit=1))
    with pytest.raises(UsageLimitExceeded):
        await agent.run("hi", usage_limits=UsageLimits(tool_calls_limit=0))

    trees = [outline(each) for each in await trees_of(store)]
    assert [tree[0] for tree in trees] == ["plan of agent: failed (budget_exhausted)"] * 2
    assert [tree[2] for tree in trees] == [
        '    double({"x":1}): succeeded',
        '    double({"x":1}): cancelled (not_reached)',
    ]


async def test_tool_run_by_the_provider_is_a_call_of_type_native(store: RecordedStore) -> None:
    answer = ModelResponse(
        [
            NativeToolCallPart("web_search", {"q": "tides"}, tool_call_id="n1"),
            NativeToolReturnPart("web_search", {"hits": 3}, tool_call_id="n1"),
            TextPart("Low at 06:41."),
        ]
    )
    await Agent(scripted(answer)).run("hi")

    [call] = calls_of(await tree_of(store))
    assert (call["name"], call["toolType"], call["status"]) == ("web_search", "NATIVE", "succeeded")
    assert (call["arguments"], call["result"]) == ('{"q":"tides"}', '{"hits":3}')


async def test_failed_model_request_fails_the_round(store: RecordedStore) -> None:
    def fails(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ConnectionError("nobody there")

    with pytest.raises(ConnectionError):
        await Agent(FunctionModel(fails), name="agent").run("hi")

    assert outline(await tree_of(store)) == [
        "plan of agent: failed",
        "  round: failed (model_error)",
    ]


async def test_answer_of_a_fallback_model_is_recorded_in_the_same_round(
    store: RecordedStore,
) -> None:
    def fails(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ConnectionError("nobody there")

    model = FallbackModel(FunctionModel(fails), scripted("done"), fallback_on=ConnectionError)
    await Agent(model, name="agent").run("hi")

    tree = await tree_of(store)
    assert outline(tree) == ["plan of agent: succeeded", "  round: succeeded"]
    assert tree["agentExecutions"][0]["thinkActs"][0]["model"] == "gpt-5-mini"


async def test_arguments_with_escapes_and_surrogates_are_recorded_unchanged(
    store: RecordedStore,
) -> None:
    odd = '{ "text" : "a\\u0000b \\ud83d\\ude00" }'

    def echo(text: str) -> str:
        return f"\x00 {text} \ud800"

    await Agent(scripted(calls(("echo", odd, "\ud800")), "\x00 done"), tools=[echo]).run("\x00 hi")

    tree = await tree_of(store)
    [call] = calls_of(tree)
    assert call["arguments"] == odd
    assert tree["status"] == "succeeded"
