"""pydantic-ai: each tool call is recorded once, with its result, error or cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai import (
    Agent,
    ModelRetry,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.adapters.outline import calls_of, outline
from tests.adapters.pydantic_ai_agents import calls, installed, scripted
from tests.adapters.recording import RecordedStore, tree_of
from tracer.client.work import ToolCall, current_work

DEADLINE_SECONDS = 60.0


@pytest.fixture
def store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[RecordedStore]:
    with installed(tmp_path, caplog) as (_, store):
        yield store


def double(x: int) -> int:
    return 2 * x


async def test_tool_function_starts_after_its_call_is_stored(store: RecordedStore) -> None:
    store.seconds = 0.05  # so that a tool that did not wait would see it
    seen: list[bool] = []

    async def look() -> str:
        work = current_work()
        assert isinstance(work, ToolCall)
        seen.append(work.is_durable)
        return ""

    await Agent(scripted(calls(("look", "{}", "c1")), "done"), tools=[look]).run("hi")

    assert seen == [True]
    assert [call["status"] for call in calls_of(await tree_of(store))] == ["succeeded"]


async def test_calls_of_unknown_tools_or_with_invalid_arguments_have_reasons(
    store: RecordedStore,
) -> None:
    chosen = calls(("gone", "{}", "c1"), ("double", '{"x":"z"}', "c2"), ("double", '{"x":1}', "c3"))
    await Agent(scripted(chosen, "done"), name="agent", tools=[double]).run("hi")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of agent: succeeded",
        "  round: succeeded",
        "    gone({}): failed (unknown_tool)",
        '    double({"x":"z"}): failed (invalid_arguments)',
        '    double({"x":1}): succeeded',
        "  round: succeeded",
    ]
    unknown, invalid, done = calls_of(tree)
    assert "gone" in unknown["error"]["message"]
    assert "valid integer" in invalid["error"]["message"]
    assert done["result"] == "2"


async def test_run_fails_when_an_unknown_tool_exceeds_the_retry_limit(
    store: RecordedStore,
) -> None:
    chosen = calls(("gone", "{}", "c1"))
    with pytest.raises(UnexpectedModelBehavior):
        await Agent(scripted(chosen, chosen), name="agent", tools=[double]).run("hi")

    assert outline(await tree_of(store)) == [
        "plan of agent: failed",
        "  round: succeeded",
        "    gone({}): failed (unknown_tool)",
        "  round: succeeded",
        "    gone({}): failed (unknown_tool)",
    ]


async def test_model_retry_fails_the_call_and_the_next_round_has_a_new_call(
    store: RecordedStore,
) -> None:
    def picky(x: int) -> str:
        if x < 2:
            raise ModelRetry("more than one, please")
        return "fine"

    chosen = [calls(("picky", '{"x":1}', "c")), calls(("picky", '{"x":2}', "c"))]
    await Agent(scripted(*chosen, "done"), name="agent", tools=[picky]).run("hi")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of agent: succeeded",
        "  round: succeeded",
        '    picky({"x":1}): failed (tool_error)',
        "  round: succeeded",
        '    picky({"x":2}): succeeded',
        "  round: succeeded",
    ]
    assert calls_of(tree)[0]["error"]["message"] == "more than one, please"


async def test_exception_of_a_tool_fails_the_agent_and_cancels_parallel_calls(
    store: RecordedStore,
) -> None:
    is_waiting = asyncio.Event()

    async def waits() -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    async def raises() -> None:
        await is_waiting.wait()
        raise ValueError("no such place")

    chosen = calls(("waits", "{}", "c0"), ("raises", "{}", "c1"))
    with pytest.raises(ValueError, match="no such place"):
        await Agent(scripted(chosen), name="agent", tools=[waits, raises]).run("hi")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of agent: failed",
        "  round: succeeded",
        "    waits({}): cancelled",
        "    raises({}): failed (tool_error)",
    ]
    assert calls_of(tree)[1]["error"]["type"] == "ValueError"
    assert tree["error"]["message"] == "no such place"


async def test_parallel_calls_that_end_out_of_order_have_their_own_results(
    store: RecordedStore,
) -> None:
    second_is_done = asyncio.Event()

    async def first(x: int) -> str:
        await second_is_done.wait()
        return f"first {x}"

    async def second(x: int) -> str:
        second_is_done.set()
        return f"second {x}"

    chosen = calls(("first", '{"x":1}', "c0"), ("second", '{"x":2}', "c1"))
    await Agent(scripted(chosen, "done"), tools=[first, second]).run("hi")

    recorded = [(each["name"], each["result"]) for each in calls_of(await tree_of(store))]
    assert recorded == [("first", "first 1"), ("second", "second 2")]


async def test_call_that_exceeds_the_tools_timeout_has_reason_timed_out(
    store: RecordedStore,
) -> None:
    agent = Agent(scripted(calls(("slow", "{}", "c")), "done"), name="agent")

    @agent.tool_plain(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    await agent.run("hi")

    assert outline(await tree_of(store))[2] == "    slow({}): failed (timed_out)"


async def test_run_cancelled_during_a_tool_call_leaves_no_record_open(
    store: RecordedStore,
) -> None:
    is_waiting = asyncio.Event()

    async def waits() -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    async def ask() -> str:
        return (await inner.run("hi")).output

    inner = Agent(scripted(calls(("waits", "{}", "c0"))), name="inner", tools=[waits])
    outer = Agent(scripted(calls(("ask", "{}", "c0"))), name="outer", tools=[ask])
    run = asyncio.create_task(outer.run("hi"))
    await asyncio.wait_for(is_waiting.wait(), DEADLINE_SECONDS)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert outline(await tree_of(store)) == [
        "plan of outer: cancelled",
        "  round: succeeded",
        "    ask({}): cancelled",
        "      plan of inner: cancelled",
        "        round: succeeded",
        "          waits({}): cancelled",
    ]


async def test_run_cancelled_during_a_model_request_leaves_no_record_open(
    store: RecordedStore,
) -> None:
    is_asked = asyncio.Event()

    async def never(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    run = asyncio.create_task(Agent(FunctionModel(never), name="agent").run("hi"))
    await asyncio.wait_for(is_asked.wait(), DEADLINE_SECONDS)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert outline(await tree_of(store)) == ["plan of agent: cancelled", "  round: cancelled"]


async def test_streamed_run_is_cancelled_if_its_reader_stops(store: RecordedStore) -> None:
    agent = Agent(scripted(calls(("double", '{"x":1}', "c")), "done"), name="agent", tools=[double])

    async with agent.iter("hi") as run:
        async for node in run:
            if Agent.is_call_tools_node(node):
                break

    assert outline(await tree_of(store)) == [
        "plan of agent: cancelled",
        "  round: succeeded",
        '    double({"x":1}): cancelled (not_reached)',
    ]


async def test_calls_with_repeated_empty_or_missing_ids_stay_separate(
    store: RecordedStore,
) -> None:
    chosen = [
        calls(("double", '{"x":1}', "")),
        calls(("double", '{"x":2}', "")),
        [ToolCallPart("double", {"x": 3}), ToolCallPart("double", {"x": 4})],
        calls(("double", '{"x":5}', "same")),
        calls(("double", '{"x":6}', "same")),
    ]
    await Agent(scripted(*chosen, "done"), tools=[double]).run("hi")

    recorded = [(each["arguments"], each["result"]) for each in calls_of(await tree_of(store))]
    assert recorded == [(f'{{"x":{x}}}', str(2 * x)) for x in range(1, 7)]


async def test_calls_that_the_library_rejects_for_equal_ids_are_not_reached(
    store: RecordedStore,
) -> None:
    chosen = calls(("double", '{"x":1}', "same"), ("double", '{"x":2}', "same"))
    with pytest.raises(UnexpectedModelBehavior):
        await Agent(scripted(chosen), name="agent", tools=[double]).run("hi")

    assert outline(await tree_of(store)) == [
        "plan of agent: failed",
        "  round: succeeded",
        '    double({"x":1}): cancelled (not_reached)',
        '    double({"x":2}): cancelled (not_reached)',
    ]
