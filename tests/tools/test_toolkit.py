"""Toolkits: tools that belong together, with their instructions and their session state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import bench, script
from tests.tools.service_bench import service
from tests.tools.test_session_state import kept
from tracer.errors import RegistrationError
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import SessionState, Tool, Toolkit, ToolRegistry, tool


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


class Scores(Toolkit):
    def __init__(self, **more: Any) -> None:
        options: dict[str, Any] = {
            "instructions": "Points so far: {points}.",
            "session_state": {"points": {"ann": 1}},
        }
        super().__init__([now], **options | more)
        self.register(self.add_point, timeout=5, tags=["scores"])
        self.by = 1

    def add_point(self, state: SessionState, player: str) -> int:
        """Give a player a point."""
        state.increment(("points", player), self.by)
        return int(state["points"][player])


class Ranks(Toolkit):
    def __init__(self, points: Any) -> None:
        super().__init__(session_state={"points": points, "ranks": []})


def application(*agents: Agent, model: ScriptedModel | None = None, **more: Any) -> Application:
    return Application(name="match", agents=agents, model=model or ScriptedModel([]), **more)


async def test_agent_gets_tools_instructions_and_state_of_its_toolkit(tmp_path: Path) -> None:
    model = ScriptedModel(
        [script("Go", [call("add_point", {"player": "ann"}), call("now")], "Counted.")]
    )
    scores = Scores()
    worker = Agent("worker", "You count.", tools=(scores,))
    match = application(worker, Agent("other", "Rest.", tools=(scores,)), model=model)
    store = recording_in_memory()
    async with bench(match, store, store, tmp_path) as on:
        outcome = await on.launcher.run("Go", agent="worker", session_id="s")
        rows = (await on.rows(outcome.root_plan_id)).tool_calls
        tree = await on.tree(outcome.root_plan_id)
        messages = await on.messages(tree["agentExecutions"][0]["thinkActs"][0])

    assert {each["name"]: each["result"] for each in rows} == {"add_point": "2", "now": "noon"}
    assert 'You count.\n\nPoints so far: {"ann":1}.' in messages[0]["content"]


async def test_registered_toolkit_adds_its_tools_and_session_state(tmp_path: Path) -> None:
    async with service(tmp_path, Scores()) as on:
        outcome = await on.tools.call("add_point", {"player": "ann"}, thread_id="s")

        assert outcome.result == "2"
        assert await kept(on.tools, "other") == {"points": {"ann": 1}}
        assert [each.name for each in on.tools.registry.tagged("scores")] == ["add_point"]
        found = on.tools.registry.find("add_point")
    assert isinstance(found, Tool)
    assert list(found.parameters["properties"]) == ["player"]
    assert found.timeout == 5


def test_toolkits_with_conflicting_initial_state_are_rejected() -> None:
    one, other = Agent("one", "", tools=(Scores(),)), Agent("other", "", tools=(Ranks({}),))
    with pytest.raises(RegistrationError, match=r"Scores and Ranks.*'points'"):
        application(one, other)
    with pytest.raises(RegistrationError, match=r"Ranks and Scores.*'points'"):
        application(one, registry=ToolRegistry([Ranks({})]))

    registry = ToolRegistry([Ranks({})])
    with pytest.raises(RegistrationError, match="'points'"):
        registry.register(Scores())
    assert (len(registry), len(registry.toolkits)) == (0, 1)


def test_state_of_the_application_overrides_that_of_a_toolkit() -> None:
    agents = [Agent("one", "", tools=(Scores(),)), Agent("other", "", tools=(Ranks({"ann": 1}),))]

    assert application(*agents).initial_state == {"points": {"ann": 1}, "ranks": []}
    own = application(*agents, session_state={"points": {"bob": 2}})
    assert own.initial_state == {"points": {"bob": 2}, "ranks": []}


async def test_toolkit_can_be_registered_while_the_service_is_open(tmp_path: Path) -> None:
    async with service(tmp_path, initial_state={"own": 1}) as on:
        on.tools.registry.register(Scores())

        outcome = await on.tools.call("add_point", {"player": "ann"}, thread_id="s")
        assert outcome.result == "2"
        assert await kept(on.tools, "s") == {"own": 1, "points": {"ann": 2}}


def test_invalid_toolkit_is_rejected_at_definition() -> None:
    with pytest.raises(RegistrationError, match="two tools named 'now'"):
        Toolkit([now, now])
    with pytest.raises(RegistrationError, match="existing tool 'now'"):
        Toolkit().register(now, timeout=3)
    with pytest.raises(RegistrationError, match="two tools named 'now'"):
        Agent("umpire", "", tools=(Scores(), now))


def test_a_toolkit_with_a_tool_whose_name_is_taken_registers_nothing() -> None:
    registry = ToolRegistry()

    @tool(name="add_point")
    def other() -> None:
        """Do something else."""

    registry.register(other)
    with pytest.raises(RegistrationError, match="'add_point'"):
        registry.register(Scores())

    assert [each.name for each in registry] == ["add_point"]
    assert registry.toolkits == ()


async def test_hooks_of_a_toolkit_are_outside_of_the_hooks_of_its_tools(tmp_path: Path) -> None:
    def around(mark: str) -> Any:
        return lambda next, arguments: f"{mark}{next(arguments)}{mark}"

    clock = Toolkit(tool_hooks=[around("-")])
    clock.register(tool(name="time", tool_hooks=[around("*")])(lambda: "noon"))
    clock.register(now)

    async with service(tmp_path, clock) as on:
        results = [(await on.tools.call(each)).result for each in ("time", "now")]

    assert results == ["-*noon*-", "-noon-"]
    assert now.tool_hooks == ()


async def test_state_of_an_agent_is_above_the_application_and_for_its_own_conversations(
    tmp_path: Path,
) -> None:
    texts = ("A: {a} {b} {c} {d}.",) * 3
    first = Agent("first", texts[0], session_state={"b": "first", "c": "first"})
    second = Agent("second", texts[1], session_state={"c": "second", "d": "second"})
    model = ScriptedModel([Script([Turn("done")], times=None)])
    state = {"a": "application", "b": "application"}
    app = application(first, second, model=model, session_state=state)
    store = recording_in_memory()
    messages = []
    async with bench(app, store, store, tmp_path) as on:
        for name in ("first", "second"):
            for session in (None, name):
                run = await on.launcher.run("Go", agent=name, session_id=session)
                [step] = (await on.tree(run.root_plan_id))["agentExecutions"]
                shown = (await on.messages(step["thinkActs"][0]))[0]["content"]
                messages.append(shown.split("A: ")[1])

    assert messages == [
        *["application first first second."] * 2,
        *["application first second second."] * 2,
    ]
