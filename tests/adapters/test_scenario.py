"""The example scenario of `scenario.py`: recorded with blocks, and compared with captured spans."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.adapters.recording import recording, tree_of, trees_of
from tests.adapters.scenario import (
    CITIES,
    MODEL,
    PLANNER,
    RESEARCHER,
    Scenario,
    assert_scenario,
    expected_facts,
    scenario,
)
from tests.otel.captured import expected_facts as captured_facts
from tracer.client import Tracing
from tracer.client.work import Chosen, ToolCall


async def _agent(tracing: Tracing, wanted: Scenario, name: str, asked: str) -> str:
    """An agent written from scratch."""
    async with tracing.plan(asked, agent=name) as plan:
        answered = 0
        while True:
            async with tracing.think_act(
                [{"role": "user", "content": asked}], model=MODEL
            ) as round:
                turn = wanted.turn(asked, answered)
                answered += 1
                calls = round.finish(
                    turn.text,
                    input_tokens=turn.input_tokens,
                    output_tokens=turn.output_tokens,
                    tool_calls=[
                        Chosen(each.name, each.arguments_text, each.provider_call_id)
                        for each in turn.calls
                    ],
                )
            if turn.text is not None:
                plan.finish(turn.text)
                return turn.text
            arguments = [each.arguments for each in turn.calls]
            await asyncio.gather(
                *(_tool(tracing, wanted, *each) for each in zip(calls, arguments, strict=True)),
                return_exceptions=True,
            )


async def _tool(
    tracing: Tracing, wanted: Scenario, call: ToolCall, arguments: dict[str, str]
) -> None:
    async with call:
        [argument] = arguments.values()
        match call.name:
            case "weather":
                call.finish(wanted.weather(argument))
            case "search":
                call.finish(wanted.search(argument))
            case _:
                call.finish(await _agent(tracing, wanted, RESEARCHER, argument))


@pytest.mark.parametrize("buffered", [False, True])
async def test_scenario_recorded_by_hand_has_the_expected_tree(
    tmp_path: Path, buffered: bool
) -> None:
    wanted = scenario()
    with recording(tmp_path, buffered) as (tracing, store):
        await _agent(tracing, wanted, PLANNER, wanted.prompt)

        assert_scenario(await tree_of(store))


async def test_concurrent_runs_recorded_by_hand_stay_separate(tmp_path: Path) -> None:
    all_wanted = [scenario(run) for run in range(len(CITIES))]
    with recording(tmp_path) as (tracing, store):
        await asyncio.gather(
            *(_agent(tracing, wanted, PLANNER, wanted.prompt) for wanted in all_wanted)
        )
        trees = {tree["title"]: tree for tree in await trees_of(store)}

    for wanted in all_wanted:
        assert_scenario(trees[wanted.prompt], wanted)


@pytest.mark.parametrize(
    ("capture", "delegate", "argument"),
    [
        ("pydantic-ai-default-concurrent", "ask_researcher", "question"),
        ("openai-agents-openinference-concurrent", "ask_researcher", "input"),
        ("google-adk-v2-single", "researcher", "request"),
    ],
)
def test_captured_spans_have_the_calls_and_tokens_of_the_scenario(
    capture: str, delegate: str, argument: str
) -> None:
    captured = captured_facts(capture)
    runs = [
        expected_facts(scenario(run, delegate, argument)) for run in range(captured.tokens.total())
    ]

    assert sum((each.calls for each in runs), runs[0].calls - runs[0].calls) == captured.calls
    assert {each.tokens for each in runs} == set(captured.tokens)
