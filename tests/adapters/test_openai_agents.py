"""OpenAI Agents SDK: runs that fail, are cancelled, pause or resume."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    function_tool,
    set_trace_processors,
)
from agents.exceptions import (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    UserError,
)

from tests.adapters.installed import installed
from tests.adapters.openai_agents_scripts import DONE, Tide, agent_of, call_of, divide
from tests.adapters.outline import calls_of, outline
from tests.adapters.recording import RecordedStore, tree_of, trees_of
from tracer.adapters import openai_agents


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    set_trace_processors([])
    with installed(openai_agents.install, tmp_path) as store:
        yield store


async def test_tool_error_handled_by_the_sdk_fails_the_call_but_not_the_run(
    store: RecordedStore,
) -> None:
    agent = agent_of(
        [call_of("divide", '{"a": 4, "b": 2}', "x"), call_of("divide", '{"a": 1, "b": 0}', "y")],
        DONE,
        tools=[divide],
    )

    await Runner.run(agent, "Divide.")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of planner: succeeded",
        "  round: succeeded",
        '    divide({"a": 4, "b": 2}): succeeded',
        '    divide({"a": 1, "b": 0}): failed (tool_error)',
        "  round: succeeded",
    ]
    right, wrong = calls_of(tree)
    assert (right["result"], right["providerCallId"]) == ("2.0", "x")
    assert (wrong["error"]["type"], wrong["error"]["message"]) == (
        "ZeroDivisionError",
        "division by zero",
    )
    assert wrong["result"].startswith("An error occurred"), "what the model was told"


async def test_uncaught_tool_error_fails_the_call_and_the_run(store: RecordedStore) -> None:
    @function_tool(failure_error_function=None)
    def explode() -> str:
        raise OSError("no more")

    tide = Tide()
    agent = agent_of([call_of("explode", call_id="x"), call_of("tide", call_id="y")])
    agent.tools = [explode, tide.tool]

    with pytest.raises(UserError):
        await Runner.run(agent, "Explode.")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of planner: failed",
        "  round: succeeded",
        "    explode({}): failed (tool_error)",
        "    tide({}): cancelled",
    ]
    assert calls_of(tree)[0]["error"]["type"] == "OSError"


async def test_call_with_malformed_json_fails_with_invalid_arguments(
    store: RecordedStore,
) -> None:
    agent = agent_of([call_of("divide", "a by b")], DONE, tools=[divide])

    await Runner.run(agent, "Divide.")

    assert outline(await tree_of(store))[2] == "    divide(a by b): failed (invalid_arguments)"


async def test_call_of_an_unknown_tool_fails_with_unknown_tool(store: RecordedStore) -> None:
    with pytest.raises(ModelBehaviorError):
        await Runner.run(agent_of([call_of("fly")]), "Fly.")
    settings = RunConfig(tool_not_found_behavior="return_error_to_model")
    await Runner.run(agent_of([call_of("fly")], DONE), "Fly.", run_config=settings)

    assert [outline(tree) for tree in await trees_of(store)] == [
        [
            "plan of planner: failed",
            "  round: succeeded",
            "    fly({}): failed (unknown_tool)",
        ],
        [
            "plan of planner: succeeded",
            "  round: succeeded",
            "    fly({}): failed (unknown_tool)",
            "  round: succeeded",
        ],
    ]


async def test_call_that_exceeds_the_tools_timeout_has_reason_timed_out(
    store: RecordedStore,
) -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    slow = function_tool(endless, name_override="slow", timeout=0.01)
    settings = function_tool(
        endless, name_override="told", timeout=0.01, timeout_error_function=lambda _, __: "later"
    )
    agent = agent_of([call_of("slow", call_id="x"), call_of("told", call_id="y")], DONE)
    agent.tools = [slow, settings]

    await Runner.run(agent, "Wait.")

    tree = await tree_of(store)
    assert [each["reason"] for each in calls_of(tree)] == ["timed_out", "timed_out"]
    assert calls_of(tree)[1]["result"] == "later"


async def test_cancelled_run_leaves_no_record_open(store: RecordedStore) -> None:
    tide = Tide()
    researcher = agent_of([call_of("tide", call_id="call_0")], name="researcher", tools=[tide.tool])
    asked = [call_of("ask", '{"input": "When?"}', "call_0"), call_of("tide", call_id="call_1")]
    agent = agent_of(asked, tools=[researcher.as_tool("ask", "Ask."), tide.tool])

    run = asyncio.create_task(Runner.run(agent, "Plan."))
    await tide.asked.acquire()
    await tide.asked.acquire()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    async with asyncio.timeout(60):
        while "running" in str(lines := outline(await tree_of(store))):
            pass
    assert lines == [
        "plan of planner: cancelled",
        "  round: succeeded",
        '    ask({"input": "When?"}): cancelled',
        "      plan of researcher: cancelled",
        "        round: succeeded",
        "          tide({}): cancelled",
        "    tide({}): cancelled",
    ]


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
async def test_streamed_run_is_cancelled_if_its_reader_stops(
    store: RecordedStore, mode: Any
) -> None:
    agent = agent_of([call_of("divide", '{"a": 4, "b": 2}')], DONE, tools=[divide])

    result = Runner.run_streamed(agent, "Divide.")
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            result.cancel(mode)
    assert result.run_loop_task is not None
    await asyncio.wait([result.run_loop_task])

    tree = await tree_of(store)
    assert tree["status"] == "cancelled"
    assert "running" not in str(outline(tree))


async def test_model_error_fails_the_round(store: RecordedStore) -> None:
    with pytest.raises(OSError, match="gone"):
        await Runner.run(agent_of(OSError("gone")), "Think.")
    streamed = Runner.run_streamed(agent_of(OSError("gone")), "Think.")
    with pytest.raises(OSError, match="gone"):
        async for _ in streamed.stream_events():
            pass

    for tree in await trees_of(store):
        assert outline(tree) == ["plan of planner: failed", "  round: failed (model_error)"]
        assert tree["error"]["message"] == "gone"


async def test_run_that_exceeds_max_turns_fails_with_round_limit(store: RecordedStore) -> None:
    def agent() -> Agent[Any]:
        return agent_of([call_of("divide", '{"a": 4, "b": 2}')], DONE, tools=[divide])

    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(agent(), "Divide.", max_turns=1)
    streamed = Runner.run_streamed(agent(), "Divide.", max_turns=1)
    with pytest.raises(MaxTurnsExceeded):
        async for _ in streamed.stream_events():
            pass

    for tree in await trees_of(store):
        assert (tree["status"], tree["reason"]) == ("failed", "round_limit")


async def test_hand_off_is_recorded_as_a_sub_plan_of_the_step(store: RecordedStore) -> None:
    closer = agent_of([call_of("divide", '{"a": 4, "b": 2}', "z")], DONE, name="closer")
    closer.tools = [divide]
    opener = agent_of(
        [call_of("transfer_to_closer", call_id="x"), call_of("transfer_to_closer", call_id="y")],
        handoffs=[closer],
    )

    await Runner.run(opener, "Go on.")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of planner: succeeded",
        "  round: succeeded",
        "    transfer_to_closer({}): succeeded",
        "    transfer_to_closer({}): cancelled",
        "  plan of closer: succeeded",
        "    round: succeeded",
        '      divide({"a": 4, "b": 2}): succeeded',
        "    round: succeeded",
    ]
    [sub_plan] = tree["agentExecutions"][0]["subPlans"]
    assert sub_plan["openedByStepId"] == tree["agentExecutions"][0]["stepId"]
    assert (tree["summary"], sub_plan["summary"]) == ("done", "done")


async def test_tripped_guardrail_is_recorded_as_a_call_and_fails_the_run(
    store: RecordedStore,
) -> None:
    async def refuse(context: Any, agent: Any, asked: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info="rude", tripwire_triggered=True)

    agent = agent_of(DONE, input_guardrails=[InputGuardrail(refuse, run_in_parallel=False)])

    with pytest.raises(InputGuardrailTripwireTriggered):
        await Runner.run(agent, "!")

    tree = await tree_of(store)
    assert outline(tree) == ["plan of planner: failed", "  refuse(): succeeded"]
    [call] = calls_of(tree)
    assert call["toolType"] == "GUARDRAIL"
    assert call["result"] == '{"output_info":"rude","tripwire_triggered":true}'


async def test_call_rejected_by_a_guardrail_is_denied(store: RecordedStore) -> None:
    def refuse(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("not that one")

    guarded = function_tool(
        lambda: "", name_override="guarded", tool_input_guardrails=[ToolInputGuardrail(refuse)]
    )
    await Runner.run(agent_of([call_of("guarded")], DONE, tools=[guarded]), "Try.")

    tree = await tree_of(store)
    assert outline(tree)[2:4] == ["    guarded({}): failed (denied)", "      refuse(): succeeded"]
    assert calls_of(tree)[0]["result"] == "not that one"


async def test_call_awaiting_approval_is_recorded_in_the_continued_run(
    store: RecordedStore,
) -> None:
    risky = function_tool(lambda: "done it", name_override="risky", needs_approval=True)
    agent = agent_of([call_of("risky")], DONE, tools=[risky])

    first = await Runner.run(agent, "Dare.")
    state = first.to_state()
    state.approve(first.interruptions[0])
    await Runner.run(agent, state)

    assert [outline(tree) for tree in await trees_of(store)] == [
        [
            "plan of planner: succeeded",
            "  round: succeeded",
            "    risky({}): cancelled (deferred)",
        ],
        ["plan of planner: succeeded", "  round: succeeded", "  risky({}): succeeded"],
    ]
