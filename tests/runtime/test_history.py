"""The history of a session: which model calls receive it, and how much of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.recordings import run_of
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import Bench, application, bench, script
from tests.trees import Node
from tracer.context import Identity
from tracer.errors import ConfigurationError, ToolError
from tracer.recorder import Recorder, Spool
from tracer.runtime import Agent, Application, PlanTemplate, RunLauncher, StepTemplate, subplan_tool
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import RecordingInMemory
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.project_stores import PostgresSessions

PLANNED = '{"steps": [{"agent": "worker", "request": "the step"}]}'


async def received(on: Bench, step: Node) -> list[str]:
    """Return what the model received in a step's first round, without the system message."""
    messages = await on.messages(step["thinkActs"][0])
    return [each["content"] for each in messages if each["role"] != "system"]


async def steps_of(on: Bench, root_plan_id: UUID) -> list[Node]:
    steps: list[Node] = (await on.tree(root_plan_id))["agentExecutions"]
    return steps


async def last_message(on: Bench, *requests: str, session: str | None = "s") -> list[str]:
    """Ask the worker one request after the other; return what the model receives last."""
    for request in requests:
        outcome = await on.launcher.run(request, agent="worker", session_id=session)
    [step] = await steps_of(on, outcome.root_plan_id)
    return await received(on, step)


def answering(*requests: str) -> ScriptedModel:
    return ScriptedModel([script(each, f"{each}!", times=None) for each in requests])


@pytest.mark.parametrize(
    ("characters", "expected"),
    [
        (20, ["one", "one!", "two", "two!", "3"]),
        (14, ["one", "one!", "two", "two!", "3"]),
        (13, ["two", "two!", "3"]),
        (6, ["3"]),
        (0, ["3"]),
    ],
)
async def test_history_limit_drops_whole_exchanges_oldest_first(
    open_postgres_bench: OpenBench, characters: int, expected: list[str]
) -> None:
    model = answering("one", "two", "3")
    on = await open_postgres_bench(application(model, history_characters=characters))
    assert await last_message(on, "one", "two", "3") == expected


async def test_run_without_a_session_receives_no_history(open_postgres_bench: OpenBench) -> None:
    on = await open_postgres_bench(application(answering("one", "two")))
    assert await last_message(on, "one", "two", session=None) == ["two"]


async def test_history_has_the_request_of_a_failed_run_without_an_answer(
    open_postgres_bench: OpenBench,
) -> None:
    model = ScriptedModel([script("one", Turn(error=ToolError("no"))), script("two", "two!")])
    on = await open_postgres_bench(application(model))
    assert await last_message(on, "one", "two") == ["one", "two"]


async def test_planner_receives_the_history_and_the_steps_of_its_plan_do_not(
    open_postgres_bench: OpenBench,
) -> None:
    plans = Script([Turn(PLANNED)], agent="planner", times=None)
    model = ScriptedModel([plans, script("the step", "done", times=None)])
    on = await open_postgres_bench(application(model))
    await on.launcher.run("one", session_id="s")
    outcome = await on.launcher.run("two", session_id="s")
    planning, step = await steps_of(on, outcome.root_plan_id)
    assert await received(on, planning) == ["one", "done", "two"]
    assert await received(on, step) == ["the step"]


async def test_caller_supplied_plan_receives_no_history_but_joins_it(
    open_postgres_bench: OpenBench,
) -> None:
    model = answering("one", "the step", "three")
    on = await open_postgres_bench(application(model))
    await last_message(on, "one")
    plan: Any = ("A plan", [("worker", "the step")])
    outcome = await on.launcher.run("two", plan=plan, session_id="s")
    [step] = await steps_of(on, outcome.root_plan_id)
    assert await received(on, step) == ["the step"]
    assert await last_message(on, "three") == ["one", "one!", "two", "the step!", "three"]


async def test_sub_plan_receives_no_history(open_postgres_bench: OpenBench) -> None:
    steps = (StepTemplate(agent="worker", request="below"),)
    check = subplan_tool(PlanTemplate(name="check", description="Check.", steps=steps))
    scripts = [
        script("one", "one!"),
        script("two", [call("check")], "two!"),
        script("below", "below!"),
    ]
    on = await open_postgres_bench(application(ScriptedModel(scripts), [check]))
    await last_message(on, "one")
    outcome = await on.launcher.run("two", agent="worker", session_id="s")
    [step] = await steps_of(on, outcome.root_plan_id)
    [sub_plan] = step["thinkActs"][0]["toolCalls"][0]["subPlans"]
    assert await received(on, step) == ["one", "one!", "two"]
    assert await received(on, sub_plan["agentExecutions"][0]) == ["below"]


async def test_run_fails_as_unavailable_if_the_history_cannot_be_read(
    store: RecordingInMemory, tmp_path: Path
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1"
    async with (
        open_pool(nowhere, answer_seconds=0.1) as pool,
        Recorder(store, Spool(tmp_path / "spool.db")) as recorder,
        RunLauncher(
            application(ScriptedModel([])),
            recorder,
            store,
            sessions=PostgresSessions(ProjectPool(pool)),
        ) as launcher,
    ):
        outcome = await launcher.run("one", agent="worker", session_id="s")
    run = run_of(store, outcome.root_plan_id)
    assert (run.status, run.reason) == ("failed", "unavailable")
    assert outcome.error is not None
    assert "history" in outcome.error.message


async def test_run_in_a_session_without_an_identified_caller_is_refused(
    store: RecordingInMemory, tmp_path: Path
) -> None:
    app = application(ScriptedModel([]), token_resolver=lambda token: None)
    async with bench(app, store, store, tmp_path) as on:
        outcome = await on.launcher.run(
            "one", agent="worker", session_id="s", identity=Identity("expired")
        )
    assert (outcome.status, outcome.reason) == ("failed", "missing_identity")


async def test_reading_the_history_ends_at_the_timeout_of_the_run(
    store: RecordingInMemory, tmp_path: Path
) -> None:
    async def hangs(token_id: str) -> str:
        await asyncio.Event().wait()
        return token_id

    app = application(ScriptedModel([]), token_resolver=hangs, run_timeout=0.1)
    async with bench(app, store, store, tmp_path) as on:
        outcome = await on.launcher.run(
            "one", agent="worker", session_id="s", identity=Identity("token")
        )
    assert (outcome.status, outcome.reason) == ("failed", "timed_out")


def test_negative_history_limit_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="history_characters=-1"):
        Application(
            name="tests",
            agents=(Agent("worker", "Work."),),
            model=ScriptedModel([]),
            history_characters=-1,
        )
