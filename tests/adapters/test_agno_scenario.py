"""Agno: the example scenario of `scenario.py`, recorded by the adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from agno.agent import Agent
from agno.models.message import Message
from agno.team import Team

from tests.adapters.agno_models import Answer, AnsweringModel
from tests.adapters.installed import installed
from tests.adapters.recording import RecordedStore, tree_of, trees_of
from tests.adapters.scenario import (
    CITIES,
    PLANNER,
    RESEARCHER,
    Choice,
    Scenario,
    assert_scenario,
    scenario,
)
from tracer.adapters import agno

VERSION = f"agno {version('agno')}"
SCENARIOS = [scenario(run) for run in range(len(CITIES))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    with installed(agno.install, tmp_path) as store:
        yield store


def _of(text: str, scenarios: list[Scenario] = SCENARIOS) -> Scenario:
    """Return the scenario that a text is from: its agents are shared by all runs."""
    mark = text[: text.index("]")]
    return next(each for each in scenarios if each.prompt.startswith(mark))


def _model(scenarios: list[Scenario] = SCENARIOS) -> AnsweringModel:
    def answer(messages: list[Message]) -> Answer:
        first = next(each for each in messages if each.role == "user").get_content_string()
        answered = sum(each.role == "assistant" for each in messages)
        turn = _of(first, scenarios).turn(first, answered)
        calls = [(each.name, each.arguments_text, each.provider_call_id) for each in turn.calls]
        return Answer(turn.text, calls, (turn.input_tokens, turn.output_tokens))

    return AnsweringModel(answer=answer)


def weather(city: str) -> str:
    return SCENARIOS[0].weather(city)


async def search(q: str) -> str:
    await asyncio.sleep(_of(q).seconds(q))
    return _of(q).search(q)


def blocking_search(q: str) -> str:
    return _of(q).search(q)


blocking_search.__name__ = "search"


def _planner() -> Agent:
    researcher = Agent(name=RESEARCHER, model=_model(), tools=[search])

    async def ask_researcher(question: str) -> str:
        return str((await researcher.arun(question)).content)

    return Agent(name=PLANNER, model=_model(), tools=[weather, ask_researcher])


async def test_scenario_run_gives_the_expected_tree(store: RecordedStore) -> None:
    output = await _planner().arun(SCENARIOS[0].prompt)

    assert output.content == SCENARIOS[0].final_answer
    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


async def test_concurrent_runs_of_the_same_agents_stay_separate(store: RecordedStore) -> None:
    planner = _planner()

    await asyncio.gather(*(planner.arun(each.prompt) for each in SCENARIOS))

    trees = {tree["userRequest"]: tree for tree in await trees_of(store)}
    assert len(trees) == len(SCENARIOS)
    for each in SCENARIOS:
        assert_scenario(trees[each.prompt], each, VERSION)


async def test_streamed_run_gives_the_expected_tree(store: RecordedStore) -> None:
    async for _ in _planner().arun(SCENARIOS[0].prompt, stream=True):
        pass

    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_synchronous_run_gives_the_expected_tree(
    store: RecordedStore, is_streamed: bool
) -> None:
    researcher = Agent(name=RESEARCHER, model=_model(), tools=[blocking_search])

    def ask_researcher(question: str) -> str:
        return str(researcher.run(question).content)

    planner = Agent(name=PLANNER, model=_model(), tools=[weather, ask_researcher])

    def run() -> None:
        if is_streamed:
            list(planner.run(SCENARIOS[0].prompt, stream=True))
        else:
            planner.run(SCENARIOS[0].prompt)

    await asyncio.to_thread(run)

    assert_scenario(await tree_of(store), SCENARIOS[0], VERSION)


def _for_team(wanted: Scenario) -> Scenario:
    """Return the scenario with what delegating to a team's member needs besides."""

    def named(call: Choice) -> Choice:
        is_task = "task" in call.arguments
        return (
            replace(call, arguments={**call.arguments, "member_id": RESEARCHER})
            if is_task
            else call
        )

    turns = {
        first: tuple(replace(turn, calls=tuple(map(named, turn.calls))) for turn in each)
        for first, each in wanted.turns.items()
    }
    openers = {asked: named(call) for asked, call in wanted.openers.items()}
    return replace(wanted, turns=turns, openers=openers)


TEAM_SCENARIOS = [
    _for_team(scenario(run, "delegate_task_to_member", "task")) for run in range(len(CITIES))
]


def _team() -> Team:
    model = _model(TEAM_SCENARIOS)
    researcher = Agent(id=RESEARCHER, name=RESEARCHER, model=model, tools=[search])
    return Team(name=PLANNER, model=model, members=[researcher], tools=[weather])


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_team_members_run_is_a_sub_plan_of_the_delegating_call(
    store: RecordedStore, is_streamed: bool
) -> None:
    if is_streamed:
        async for _ in _team().arun(TEAM_SCENARIOS[0].prompt, stream=True):
            pass
    else:
        await _team().arun(TEAM_SCENARIOS[0].prompt)

    assert_scenario(await tree_of(store), TEAM_SCENARIOS[0], VERSION)


async def test_concurrent_runs_of_a_team_stay_separate(store: RecordedStore) -> None:
    team = _team()

    await asyncio.gather(*(team.arun(each.prompt) for each in TEAM_SCENARIOS))

    trees = {tree["userRequest"]: tree for tree in await trees_of(store)}
    for each in TEAM_SCENARIOS:
        assert_scenario(trees[each.prompt], each, VERSION)


async def test_sub_agents_tool_calls_are_nested_below_the_root_plan(
    store: RecordedStore,
) -> None:
    await _planner().arun(SCENARIOS[0].prompt)

    plan = await tree_of(store)
    calls = plan["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    [call] = [each for each in calls if each["subPlans"]]
    [sub_plan] = call["subPlans"]
    searches = sub_plan["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    assert (call["name"], sub_plan["agentName"]) == ("ask_researcher", RESEARCHER), VERSION
    assert sub_plan["toolCallId"] == call["toolCallId"], VERSION
    assert [each["providerCallId"] for each in searches] == ["call_0", "call_1"], VERSION
    assert plan["unplaced"] == []
