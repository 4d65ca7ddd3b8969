"""OpenAI Agents SDK: the example scenario of `scenario.py`, recorded by the adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import agents
import pytest
from agents import Agent, Runner, function_tool, set_trace_processors
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.testing.model import ModelCall, ModelStep
from agents.usage import Usage

from tests.adapters.installed import installed
from tests.adapters.recording import RecordedStore, tree_of, trees_of
from tests.adapters.scenario import (
    CITIES,
    PLANNER,
    RESEARCHER,
    Scenario,
    assert_scenario,
    scenario,
)
from tracer.adapters import openai_agents

VERSION = f"openai-agents {version('openai-agents')}"
SCENARIOS = [scenario(run, argument="input") for run in range(len(CITIES))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    set_trace_processors([])
    with installed(openai_agents.install, tmp_path) as store:
        yield store


def _of(text: str) -> Scenario:
    """Return the scenario that a text is from: its agents are shared by all runs."""
    return next(
        each for each in SCENARIOS if text[: text.index("]")] == each.prompt[: text.index("]")]
    )


def _answer(call: ModelCall) -> ModelStep:
    items: list[dict[str, Any]] = call.input
    first_message = items[0]["content"]
    calls = [each for each in items if each.get("type") == "function_call"]
    turn = _of(first_message).turn(first_message, len(calls) // 2)
    output = [
        function_call(each.name, each.arguments_text, call_id=each.provider_call_id)
        for each in turn.calls
    ]
    return ModelStep(
        output=output or [assistant_message(turn.text or "")],
        usage=Usage(
            requests=1,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            total_tokens=turn.input_tokens + turn.output_tokens,
        ),
    )


def _planner() -> Agent[Any]:
    @function_tool
    def weather(city: str) -> str:
        return SCENARIOS[0].weather(city)

    @function_tool
    async def search(q: str) -> str:
        await asyncio.sleep(_of(q).seconds(q))
        return _of(q).search(q)

    model = ScriptedModel([ModelStep.respond(_answer) for _ in range(100)])
    researcher = Agent[Any](name=RESEARCHER, model=model, tools=[search])
    ask_researcher = researcher.as_tool("ask_researcher", "Ask the researcher.")
    return Agent[Any](name=PLANNER, model=model, tools=[weather, ask_researcher])


async def test_scenario_run_gives_the_expected_tree(store: RecordedStore) -> None:
    result = await Runner.run(_planner(), SCENARIOS[0].prompt)

    assert result.final_output == SCENARIOS[0].final_answer
    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


async def test_concurrent_runs_of_the_same_agents_stay_separate(store: RecordedStore) -> None:
    planner = _planner()

    await asyncio.gather(*(Runner.run(planner, each.prompt) for each in SCENARIOS))

    trees = {tree["userRequest"]: tree for tree in await trees_of(store)}
    assert len(trees) == len(SCENARIOS)
    for each in SCENARIOS:
        assert_scenario(trees[each.prompt], each, VERSION)


async def test_streamed_run_gives_the_expected_tree(store: RecordedStore) -> None:
    result = Runner.run_streamed(_planner(), SCENARIOS[0].prompt)
    async for _ in result.stream_events():
        pass

    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


async def test_synchronous_run_gives_the_expected_tree(store: RecordedStore) -> None:
    def run() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        Runner.run_sync(_planner(), SCENARIOS[0].prompt)
        loop.close()

    await asyncio.to_thread(run)

    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


async def test_runs_are_recorded_if_the_sdks_own_tracing_is_disabled(store: RecordedStore) -> None:
    config = agents.RunConfig(tracing_disabled=True)

    await Runner.run(_planner(), SCENARIOS[0].prompt, run_config=config)

    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


async def test_sub_agents_tool_calls_are_nested_below_the_root_plan(
    store: RecordedStore,
) -> None:
    await Runner.run(_planner(), SCENARIOS[0].prompt)

    plan = await tree_of(store)
    [call] = [
        each
        for think_act in plan["agentExecutions"][0]["thinkActs"][:1]
        for each in think_act["toolCalls"]
        if each["subPlans"]
    ]
    [sub_plan] = call["subPlans"]
    searches = sub_plan["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    assert (call["name"], sub_plan["agentName"]) == ("ask_researcher", RESEARCHER), VERSION
    assert sub_plan["toolCallId"] == call["toolCallId"], VERSION
    assert [each["providerCallId"] for each in searches] == ["call_0", "call_1"], VERSION
    assert plan["unplaced"] == []
