"""LangChain's `create_agent`: the example scenario of `scenario.py`, run in each way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from tests.adapters.langchain_agents import (
    VERSIONS,
    Says,
    Streams,
    ask,
    chooses,
    in_order,
    new_agent,
    recorded,
    scenario_agent,
)
from tests.adapters.recording import recording, tree_of, trees_of
from tests.adapters.scenario import CITIES, assert_scenario, scenario
from tests.recordings import runs_of
from tests.trees import read_tree
from tracer.adapters.langchain import runs as langchain_runs
from tracer.lineage import Payloads
from tracer.records.prices import TokenUsage, cost_of


async def _ainvoke(agent: Any, prompt: str) -> None:
    await agent.ainvoke(ask(prompt))


async def _astream(agent: Any, prompt: str) -> None:
    async for _ in agent.astream(ask(prompt), stream_mode=["messages", "updates"]):
        pass


async def _astream_events(agent: Any, prompt: str) -> None:
    async for _ in agent.astream_events(ask(prompt), version="v2"):
        pass


async def _abatch(agent: Any, prompt: str) -> None:
    await agent.abatch([ask(prompt)])


async def _invoke(agent: Any, prompt: str) -> None:
    await asyncio.to_thread(agent.invoke, ask(prompt))


async def _stream(agent: Any, prompt: str) -> None:
    def stream() -> None:
        for _ in agent.stream(ask(prompt), stream_mode="messages"):
            pass

    await asyncio.to_thread(stream)


async def _invoke_in_the_event_loop(agent: Any, prompt: str) -> None:
    agent.invoke(ask(prompt))


ASYNC = [_ainvoke, _astream, _astream_events, _abatch]
SYNC = [_invoke, _stream, _invoke_in_the_event_loop]


def _ways() -> Iterator[Any]:
    """Yield every combination; the quick profile tries each way to run once."""
    for number, run in enumerate([*ASYNC, *SYNC]):
        for buffered, model in product([False, True], [Says, Streams]):
            is_quick = (buffered, model) == (
                number % 2 == 1,
                Streams if "stream" in run.__name__ else Says,
            )
            yield pytest.param(run, buffered, model, marks=[] if is_quick else pytest.mark.thorough)


@pytest.mark.parametrize(("run", "buffered", "model"), [*_ways()])
async def test_scenario_run_gives_the_expected_tree(
    run: Callable[[Any, str], Awaitable[None]],
    buffered: bool,
    model: type[Says],
    tmp_path: Path,
) -> None:
    wanted = scenario()
    agent = scenario_agent([wanted], model, is_async=run in ASYNC)
    with recording(tmp_path, buffered) as (tracing, store):
        uninstall = langchain_runs.install(tracing)
        await run(agent, wanted.prompt)
        uninstall()
        tree = await tree_of(store)

    assert_scenario(tree, wanted, VERSIONS)
    assert tree["status"] == "succeeded"
    assert tree["userRequest"] == wanted.prompt
    assert tree["summary"] == wanted.final_answer


async def test_sync_tools_of_an_async_run_give_the_expected_tree(tmp_path: Path) -> None:
    wanted = scenario()
    with recorded(tmp_path) as store:
        await scenario_agent([wanted], is_async=False).ainvoke(ask(wanted.prompt))

        assert_scenario(await tree_of(store), wanted, VERSIONS)


@pytest.mark.parametrize("run", [_ainvoke, _invoke])
async def test_concurrent_runs_of_the_same_agents_stay_separate(
    run: Callable[[Any, str], Awaitable[None]], tmp_path: Path
) -> None:
    all_wanted = [scenario(run) for run in range(len(CITIES))]
    agent = scenario_agent(all_wanted, is_async=run is _ainvoke)
    with recorded(tmp_path) as store:
        await asyncio.gather(*(run(agent, wanted.prompt) for wanted in all_wanted))
        trees = {tree["userRequest"]: tree for tree in await trees_of(store)}

    for wanted in all_wanted:
        assert_scenario(trees[wanted.prompt], wanted, VERSIONS)


async def test_sub_agents_tool_calls_are_nested_below_the_opening_call(
    tmp_path: Path,
) -> None:
    wanted = scenario()
    with recorded(tmp_path) as store:
        await scenario_agent([wanted]).ainvoke(ask(wanted.prompt))
        root = await tree_of(store)

    [opener] = [
        call
        for call in root["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
        if call["name"] == "ask_researcher"
    ]
    [sub_plan] = opener["subPlans"]
    searches = sub_plan["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    path = [
        root["agentName"],
        opener["name"],
        sub_plan["agentName"],
        *(each["name"] for each in searches),
    ]
    assert path == ["planner", "ask_researcher", "researcher", "search", "search"], VERSIONS
    assert sub_plan["toolCallId"] == opener["toolCallId"], VERSIONS
    assert sub_plan["parentPlanId"] == root["planId"], VERSIONS


async def test_adapter_records_nothing_after_uninstall(tmp_path: Path) -> None:
    wanted = scenario()
    agent = scenario_agent([wanted])
    with recording(tmp_path) as (tracing, store):
        uninstall = langchain_runs.install(tracing)
        await agent.ainvoke(ask(wanted.prompt))
        uninstall()
        await agent.ainvoke(ask(wanted.prompt))

        assert_scenario(await tree_of(store), wanted, VERSIONS)


@pytest.mark.parametrize("run", [_ainvoke, _invoke, _invoke_in_the_event_loop])
async def test_requested_calls_are_stored_before_the_tool_function_runs(
    run: Callable[[Any, str], Awaitable[None]], tmp_path: Path
) -> None:
    seen: list[list[tuple[str, str]]] = []

    async def read() -> Any:
        [run] = runs_of(store)
        return await read_tree(store, run.root_plan_id, Payloads.FULL)

    def look(text: str) -> str:
        """Looks at what is stored."""
        # In a thread: in this one, a loop may run.
        rows = ThreadPoolExecutor(1).submit(asyncio.run, read()).result()
        calls = sorted(rows.tool_calls, key=lambda call: call["position"])
        seen.append([(call["name"], call["status"]) for call in calls])
        return text

    agent = new_agent(
        in_order(chooses(("look", {"text": "a"}, "call_0")), "done"),
        [tool(look)],
    )
    with recorded(tmp_path) as store:
        await run(agent, "go")

    assert seen == [[("look", "running")]]


async def test_cost_of_a_round_is_computed_from_the_price_list(tmp_path: Path) -> None:
    answer = AIMessage(
        "done",
        usage_metadata={
            "input_tokens": 1000,
            "output_tokens": 100,
            "total_tokens": 1100,
            "input_token_details": {"cache_read": 800},
        },
        response_metadata={"model_name": "gpt-5-mini"},
    )
    with recorded(tmp_path) as store:
        await new_agent(in_order(answer), []).ainvoke(ask("go"))
        tree = await tree_of(store)

    cost = cost_of(TokenUsage(1000, 100, 800), "gpt-5-mini")
    assert cost is not None
    assert tree["cumulative"]["costUsd"] == float(cost)
