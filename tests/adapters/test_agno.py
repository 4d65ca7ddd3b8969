"""Agno: runs that fail, are cancelled, pause or resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import pytest
from agno.agent import Agent
from agno.exceptions import RetryAgentRun, StopAgentRun
from agno.run.base import RunStatus
from agno.team import Team
from agno.tools import tool

from tests.adapters.agno_models import DONE, Answer, agent_of, answers, calling, divide
from tests.adapters.installed import installed
from tests.adapters.outline import calls_of, outline
from tests.adapters.recording import RecordedStore, tree_of, trees_of
from tracer.adapters import agno


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    with installed(agno.install, tmp_path) as store:
        yield store
    assert agno.open_plans() == []


class Tide:
    """A tool that never answers; a test can wait until it is asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)

    async def tide(self) -> str:
        """Tell the tide."""
        self.asked.release()
        await asyncio.Event().wait()
        return ""


async def test_failed_calls_keep_their_own_reasons_if_provider_call_ids_collide(
    store: RecordedStore,
) -> None:
    agent = agent_of(
        calling(
            ("divide", '{"a": 1, "b": 0}', "x"),
            ("divide", "one by two", "x"),
            ("fly", "{}", "x"),
            ("divide", '{"a": 4, "b": 2}', "x"),
            ("divide", '{"a": 6, "b": 2}', ""),
            ("divide", '{"a": 8, "b": 2}', None),
        ),
        DONE,
        tools=[divide],
    )

    await agent.arun("Divide.")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of planner: succeeded",
        "  round: succeeded",
        '    divide({"a": 1, "b": 0}): failed (tool_error)',
        "    divide(one by two): failed (invalid_arguments)",
        "    fly({}): failed (unknown_tool)",
        '    divide({"a": 4, "b": 2}): succeeded',
        '    divide({"a": 6, "b": 2}): succeeded',
        '    divide({"a": 8, "b": 2}): succeeded',
        "  round: succeeded",
    ]
    calls = calls_of(tree)
    assert calls[0]["error"]["type"] == "ZeroDivisionError"
    assert [each["result"] for each in calls[3:]] == ["2.0", "3.0", "4.0"]
    assert tree["summary"] == "done"


@pytest.mark.parametrize("error", [RetryAgentRun("once more"), StopAgentRun("enough")])
async def test_control_flow_error_raised_by_a_tool_is_recorded_on_its_call(
    store: RecordedStore, error: Exception
) -> None:
    def steer() -> str:
        raise error

    await agent_of(calling(("steer", {}, "x")), DONE, tools=[steer]).arun("Go.")

    tree = await tree_of(store)
    assert tree["status"] == "succeeded"
    assert calls_of(tree)[0]["error"]["message"] == str(error)


async def test_generator_tool_call_ends_when_its_generator_ends(
    store: RecordedStore,
) -> None:
    def low() -> Iterator[str]:
        yield "lo"
        yield "w"

    async def high() -> AsyncIterator[str]:
        yield "hi"
        raise OSError("flooded")

    agent = agent_of(calling(("low", {}, "x"), ("high", {}, "y")), DONE, tools=[low, high])
    await agent.arun("Tide?")

    right, wrong = calls_of(await tree_of(store))
    assert (right["status"], right["result"]) == ("succeeded", "low")
    assert (wrong["status"], wrong["error"]["message"]) == ("failed", "flooded")


async def test_call_over_the_tool_call_limit_fails_with_budget_exhausted(
    store: RecordedStore,
) -> None:
    asked = calling(("divide", '{"a": 4, "b": 2}', "x"), ("divide", '{"a": 6, "b": 2}', "y"))
    await agent_of(asked, DONE, tools=[divide], tool_call_limit=1).arun("Divide.")

    statuses = [(each["status"], each["reason"]) for each in calls_of(await tree_of(store))]
    assert statuses == [("succeeded", None), ("failed", "budget_exhausted")]


async def test_cancelled_run_cancels_its_open_tool_calls_and_sub_agents(
    store: RecordedStore,
) -> None:
    tide = Tide()
    researcher = agent_of(calling(("tide", {}, "call_0")), name="researcher", tools=[tide.tide])

    async def ask(question: str) -> str:
        return str((await researcher.arun(question)).content)

    asked = calling(("ask", '{"question": "When?"}', "call_0"), ("tide", "{}", "call_1"))
    run = asyncio.create_task(agent_of(asked, tools=[ask, tide.tide]).arun("Plan."))
    await tide.asked.acquire()
    await tide.asked.acquire()
    run.cancel()
    await asyncio.wait([run])

    assert outline(await tree_of(store)) == [
        "plan of planner: cancelled",
        "  round: succeeded",
        '    ask({"question": "When?"}): cancelled',
        "      plan of researcher: cancelled",
        "        round: succeeded",
        "          tide({}): cancelled",
        "    tide({}): cancelled",
    ]


async def test_cancelled_team_cancels_its_members(store: RecordedStore) -> None:
    tide = Tide()
    member = agent_of(calling(("tide", {}, "x")), name="diver", id="diver", tools=[tide.tide])
    delegate = ("delegate_task_to_member", '{"member_id": "diver", "task": "Dive."}', "x")
    team = Team(name="crew", model=answers(calling(delegate)), members=[member])

    before = asyncio.all_tasks()
    run = asyncio.create_task(team.arun("Go."))
    await tide.asked.acquire()
    run.cancel()
    await asyncio.wait([run])
    left_running = asyncio.all_tasks() - before

    assert outline(await tree_of(store)) == [
        "plan of crew: cancelled",
        "  round: succeeded",
        '    delegate_task_to_member({"member_id": "diver", "task": "Dive."}): cancelled',
        "      plan of diver: cancelled",
        "        round: succeeded",
        "          tide({}): cancelled",
    ]
    for each in left_running:  # by Agno: the member's
        each.cancel()
    await asyncio.wait(left_running)


async def test_cancelling_a_run_by_its_id_records_it_as_cancelled(store: RecordedStore) -> None:
    ids: list[str] = []

    def cancel() -> str:
        Agent.cancel_run(ids[0])
        return "cancelled"

    agent = agent_of(calling(("cancel", {}, "x")), DONE, tools=[cancel])
    async for event in agent.arun("Stop.", stream=True, stream_events=True):
        ids.append(str(event.run_id))

    assert outline(await tree_of(store))[0] == "plan of planner: cancelled"


async def test_streamed_run_is_cancelled_if_its_reader_stops(store: RecordedStore) -> None:
    agent = agent_of(calling(("divide", '{"a": 4, "b": 2}', "x")), DONE, tools=[divide])

    stream = agent.arun("Divide.", stream=True)
    async for _ in stream:
        break
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()

    tree = await tree_of(store)
    assert tree["status"] == "cancelled"
    assert "running" not in str(outline(tree))


async def test_model_error_fails_the_round_and_the_run(
    store: RecordedStore,
) -> None:
    lost = Answer(error=OSError("gone"))
    output = await agent_of(lost).arun("Think.")
    async for _ in agent_of(lost).arun("Think.", stream=True):
        pass
    await agent_of(lost, DONE, retries=1).arun("Think.")

    assert output.status == RunStatus.error
    failed, streamed, tried_again = await trees_of(store)
    assert outline(failed) == ["plan of planner: failed", "  round: failed (model_error)"]
    assert outline(streamed) == outline(failed)
    assert (failed["error"]["type"], failed["error"]["message"]) == ("OSError", "gone")
    assert outline(tried_again) == [
        "plan of planner: succeeded",
        "  round: failed (model_error)",
        "  round: succeeded",
    ]


async def test_call_awaiting_approval_is_recorded_in_the_continued_run(
    store: RecordedStore,
) -> None:
    @tool(requires_confirmation=True)
    def risky() -> str:
        return "done it"

    agent = agent_of(calling(("risky", "{}", "x")), DONE, tools=[risky])
    first = await agent.arun("Dare.")
    for requirement in first.requirements or ():
        requirement.confirm()  # type: ignore[no-untyped-call]
    await agent.acontinue_run(run_response=first, requirements=first.requirements)

    assert [outline(tree) for tree in await trees_of(store)] == [
        [
            "plan of planner: succeeded",
            "  round: succeeded",
            "    risky({}): cancelled (deferred)",
        ],
        ["plan of planner: succeeded", "  round: succeeded", "  risky({}): succeeded"],
    ]


@pytest.mark.parametrize("is_async", [False, True])
async def test_call_that_delegates_to_several_members_opens_their_sub_plans(
    store: RecordedStore, is_async: bool
) -> None:
    members: list[Agent | Team] = [agent_of(DONE, name=name, id=name) for name in ("ann", "bob")]
    asked = calling(("delegate_task_to_members", '{"task": "Dive."}', "x"))
    team = Team(name="crew", model=answers(asked, DONE), members=members)
    team.delegate_to_all_members = True

    await (team.arun("Go.") if is_async else asyncio.to_thread(team.run, "Go."))

    [call] = calls_of(await tree_of(store))
    assert sorted(each["agentName"] for each in call["subPlans"]) == ["ann", "bob"]
