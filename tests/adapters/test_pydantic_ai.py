"""pydantic-ai: the example scenario of `scenario.py`, run in each way, and the parents of runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from pydantic_ai import Agent

from tests.adapters.outline import outline
from tests.adapters.pydantic_ai_agents import (
    VERSION,
    Recorded,
    calls,
    installed,
    planner_of,
    run_sync,
    scripted,
)
from tests.adapters.recording import PLENTY_SECONDS, recording, tree_of, trees_of
from tests.adapters.scenario import CITIES, assert_scenario, scenario
from tests.client.programs import NOBODY
from tests.recordings import messages_of, runs_of
from tracer.adapters import pydantic_ai
from tracer.adapters.pydantic_ai.run import PydanticAIRun
from tracer.connecting import connect
from tracer.context import in_context
from tracer.records import new_id


@pytest.fixture
def recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    with installed(tmp_path, caplog) as recorded:
        yield recorded


async def _run(planner: Agent[None, str], prompt: str) -> str:
    return (await planner.run(prompt)).output


async def _run_sync(planner: Agent[None, str], prompt: str) -> str:
    return await asyncio.to_thread(run_sync, planner, prompt)


async def _run_stream(planner: Agent[None, str], prompt: str) -> str:
    async with planner.run_stream(prompt) as result:
        return await result.get_output()


async def _iter(planner: Agent[None, str], prompt: str) -> str:
    async with planner.iter(prompt) as run:
        async for _ in run:
            pass
        assert run.result is not None
        return run.result.output


async def _run_events(planner: Agent[None, str], prompt: str) -> str:
    async with planner.run_stream_events(prompt) as events:
        async for event in events:
            if event.event_kind == "agent_run_result":
                return event.result.output
    raise AssertionError("it ended without a result")


@pytest.mark.parametrize("way", [_run, _run_sync, _run_stream, _iter, _run_events])
async def test_each_way_to_run_an_agent_gives_the_expected_tree(
    recorded: Recorded, way: Callable[[Agent[None, str], str], Awaitable[str]]
) -> None:
    wanted = scenario()

    assert await way(planner_of([wanted]), wanted.prompt) == wanted.final_answer

    tree = await tree_of(recorded[1])
    assert_scenario(tree, wanted, VERSION)
    assert tree["userRequest"] == wanted.prompt
    assert tree["summary"] == wanted.final_answer


async def test_concurrent_runs_of_the_same_agents_stay_separate(recorded: Recorded) -> None:
    all_wanted = [scenario(run) for run in range(len(CITIES))]
    planner = planner_of(all_wanted)

    await asyncio.gather(*(planner.run(each.prompt) for each in all_wanted))

    trees = {tree["userRequest"]: tree for tree in await trees_of(recorded[1])}
    for wanted in all_wanted:
        assert_scenario(trees[wanted.prompt], wanted, VERSION)


async def test_runs_in_threads_with_separate_event_loops_stay_separate(
    recorded: Recorded,
) -> None:
    all_wanted = [scenario(run) for run in range(len(CITIES))]
    planner = planner_of(all_wanted)

    def run(prompt: str) -> None:
        asyncio.run(_run(planner, prompt))

    await asyncio.gather(*(asyncio.to_thread(run, each.prompt) for each in all_wanted))

    trees = {tree["userRequest"]: tree for tree in await trees_of(recorded[1])}
    for wanted in all_wanted:
        assert_scenario(trees[wanted.prompt], wanted, VERSION)


async def test_sub_agents_tool_calls_are_nested_below_the_root_plan(
    recorded: Recorded,
) -> None:
    wanted = scenario()
    await planner_of([wanted]).run(wanted.prompt)

    root = await tree_of(recorded[1])
    [step] = root["agentExecutions"]
    delegating = step["thinkActs"][0]["toolCalls"][1]
    [sub_plan] = delegating["subPlans"]
    [sub_step] = sub_plan["agentExecutions"]
    search = sub_step["thinkActs"][0]["toolCalls"][0]
    way = [root["agentName"], delegating["name"], sub_plan["agentName"], search["name"]]
    assert way == ["planner", "ask_researcher", "researcher", "search"], VERSION
    assert sub_plan["toolCallId"] == delegating["toolCallId"], VERSION
    assert sub_plan["parentPlanId"] == root["planId"], VERSION
    assert sub_plan["rootPlanId"] == root["planId"], VERSION


async def test_parallel_sub_agents_are_below_the_calls_that_ran_them(
    recorded: Recorded,
) -> None:
    both_started = asyncio.Barrier(2)

    async def look(at: str) -> str:
        await both_started.wait()
        return at

    async def ask(question: str) -> str:
        model = scripted(calls(("look", f'{{"at":"{question}"}}', "call_0")), "seen")
        return (await Agent(model, name="inner", tools=[look]).run(question)).output

    asked = calls(("ask", '{"question":"a"}', "call_0"), ("ask", '{"question":"b"}', "call_1"))
    await Agent(scripted(asked, "done"), name="outer", tools=[ask]).run("both")

    def inner(name: str) -> list[str]:
        return [
            f'    ask({{"question":"{name}"}}): succeeded',
            "      plan of inner: succeeded",
            "        round: succeeded",
            f'          look({{"at":"{name}"}}): succeeded',
            "        round: succeeded",
        ]

    assert outline(await tree_of(recorded[1])) == [
        "plan of outer: succeeded",
        "  round: succeeded",
        *inner("a"),
        *inner("b"),
        "  round: succeeded",
    ]


async def test_sub_agent_in_a_tools_thread_is_below_the_tool_call(recorded: Recorded) -> None:
    inner = Agent(scripted("inner answer"), name="inner")

    async def ask(question: str) -> str:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:
            return await loop.run_in_executor(executor, in_context(run_sync), inner, question)

    await Agent(scripted(calls(("ask", '{"question":"q"}', "")), "done"), tools=[ask]).run("hi")

    assert outline(await tree_of(recorded[1]))[3:5] == [
        "      plan of inner: succeeded",
        "        round: succeeded",
    ]


async def test_agent_run_by_another_agents_instructions_is_a_sub_plan_of_the_step(
    recorded: Recorded,
) -> None:
    inner = Agent(scripted("inner answer"), name="inner")

    async def prepare() -> str:
        return (await inner.run("what to say")).output

    outer = Agent(scripted("done"), name="outer", instructions=prepare)
    await outer.run("hi")

    assert outline(await tree_of(recorded[1])) == [
        "plan of outer: succeeded",
        "  round: succeeded",
        "  plan of inner: succeeded",
        "    round: succeeded",
    ]


async def test_agent_run_inside_a_recorded_tool_call_is_its_sub_plan(recorded: Recorded) -> None:
    tracing, store = recorded
    async with tracing.plan(agent="hand"), tracing.tool_call("delegate", {"to": "agent"}) as call:
        call.finish((await Agent(scripted("done"), name="agent").run("hi")).output)

    assert outline(await tree_of(store)) == [
        "plan of hand: succeeded",
        '  delegate({"to":"agent"}): succeeded',
        "    plan of agent: succeeded",
        "      round: succeeded",
    ]


async def test_run_is_recorded_once_if_several_capabilities_record_it(recorded: Recorded) -> None:
    tracing, store = recorded
    agent = Agent(
        scripted("done"), name="agent", capabilities=[pydantic_ai.RecordingCapability(tracing)]
    )

    await agent.run("hi")
    await agent.run("hi", capabilities=[pydantic_ai.RecordingCapability(tracing)])

    expected = ["plan of agent: succeeded", "  round: succeeded"]
    assert [outline(tree) for tree in await trees_of(store)] == [expected, expected]


async def test_recording_capability_records_only_the_agent_that_has_it(tmp_path: Path) -> None:
    with recording(tmp_path) as (tracing, store):
        recorder = pydantic_ai.RecordingCapability(tracing)
        await Agent(scripted("done"), name="agent", capabilities=[recorder]).run("hi")
        await Agent(scripted("done"), name="other").run("hi")

        assert [tree["agentName"] for tree in await trees_of(store)] == ["agent"]


async def test_adapter_records_nothing_after_uninstall(tmp_path: Path) -> None:
    with recording(tmp_path) as (tracing, store):
        original = Agent.iter
        pydantic_ai.install(tracing)()
        await Agent(scripted("done")).run("hi")

        assert await trees_of(store) == []
        assert Agent.iter is original


async def test_conversation_id_is_recorded_as_the_session_id(recorded: Recorded) -> None:
    agent = Agent(scripted("first", "second"), name="agent")
    first = await agent.run("one", conversation_id="talk")
    await agent.run("two", message_history=first.all_messages(), conversation_id="talk")

    trees = await trees_of(recorded[1])
    runs = runs_of(recorded[1])
    assert [tree["userRequest"] for tree in trees] == ["one", "two"]
    assert [run.session_id for run in runs] == ["talk", "talk"]


async def test_round_records_the_messages_of_the_model_request(
    recorded: Recorded,
) -> None:
    await Agent(scripted("done"), instructions="Be short.").run("hi")

    root = await tree_of(recorded[1])
    [messages] = messages_of(recorded[1], UUID(root["planId"])).values()
    assert messages == (
        '[{"role":"system","parts":[{"type":"text","content":"Be short."}]},'
        '{"role":"user","parts":[{"type":"text","content":"hi"}]}]'
    )


async def test_agent_succeeds_after_the_connection_is_closed(tmp_path: Path) -> None:
    with recording(tmp_path) as (tracing, _):
        uninstall = pydantic_ai.install(tracing)
    wanted = scenario()

    try:
        result = await planner_of([wanted]).run(wanted.prompt)
    finally:
        uninstall()

    assert result.output == wanted.final_answer


async def test_agent_succeeds_while_the_server_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACER_HOME", str(tmp_path))
    wanted = scenario()
    tracing = connect(NOBODY)
    uninstall = pydantic_ai.install(tracing)
    try:
        result = await planner_of([wanted]).run(wanted.prompt)
    finally:
        uninstall()
        await asyncio.to_thread(tracing.close)

    assert result.output == wanted.final_answer
    assert _spools(tmp_path) != []


@pytest.mark.parametrize("sound", [0, 1, 2, 3, 5, 8, 13, 20])
async def test_agent_succeeds_if_recording_raises(
    tmp_path: Path, sound: int, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = scenario()
    left = [sound]

    def failing() -> UUID:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("no more ids")
        return new_id()

    with recording(tmp_path) as (tracing, _):
        tracing.ids = failing
        uninstall = pydantic_ai.install(tracing)
        try:
            result = await planner_of([wanted]).run(wanted.prompt)
        finally:
            uninstall()

    assert result.output == wanted.final_answer
    assert "adapter_failed" in {record.message.split()[0] for record in caplog.records}


async def test_ended_run_leaks_no_objects(recorded: Recorded) -> None:
    tracing, _ = recorded
    wanted = scenario()
    planner = planner_of([wanted])
    result = await planner.run(wanted.prompt)
    assert await asyncio.to_thread(tracing.flush, PLENTY_SECONDS)

    gc.collect()

    assert result.output == wanted.final_answer
    assert [each for each in gc.get_objects() if type(each) is PydanticAIRun] == []


def _spools(home: Path) -> list[Path]:
    return list(home.rglob("*.sqlite3"))
