"""Tools and hooks read and change the state of their conversation."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import application, bench, script
from tests.tools.service_bench import Service, postgres_service, service
from tracer.records.sessions import MemorySessions, SessionStates
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.project_stores import PostgresSessions
from tracer.tools import RunContext, SessionState, Tool, ToolService, tool
from tracer.tools.run import conversation_of

OpenService = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture(params=["memory", "postgres"])
def open_service(request: pytest.FixtureRequest, tmp_path: Path) -> OpenService:
    """Opens a service over each kind of store."""
    if request.param == "memory":
        return lambda *tools, **more: service(tmp_path, *tools, **more)
    url = request.getfixturevalue("database_url")
    return lambda *tools, **more: postgres_service(tmp_path, url, *tools, **more)


@pytest.fixture(params=["memory", "postgres"])
async def sessions(request: pytest.FixtureRequest) -> AsyncIterator[SessionStates]:
    if request.param == "memory":
        yield MemorySessions()
    else:
        async with open_pool(request.getfixturevalue("database_url")) as pool:
            yield PostgresSessions(ProjectPool(pool))


async def kept(tools: ToolService, session_id: str) -> dict[str, Any]:
    """Return a conversation's state as it is kept."""
    key = conversation_of(session_id, None)
    return await tools.resources.sessions.read_state(key, tools.resources.initial_state)


@tool
async def visit(state: SessionState) -> int:
    """Counts a visit, once all five have read the state."""
    before = state.get("visits", 0)
    await asyncio.sleep(0)
    state.increment("visits")
    return int(before)


@tool
def visit_in_thread(run: RunContext) -> None:
    """Counts a visit, from a thread."""
    run.session_state.increment("visits")


async def test_five_parallel_increments_through_the_service_add_up_to_five(
    open_service: OpenService,
) -> None:
    everybody = asyncio.Barrier(5)

    @tool
    async def visit_together(state: SessionState) -> None:
        await everybody.wait()
        state.increment("visits")

    async with open_service(visit_together, initial_state={"visits": 1}) as on:
        outcomes = await asyncio.gather(
            *(on.tools.call("visit_together", thread_id="s") for _ in range(5))
        )
        rows = [await on.row(each) for each in outcomes]

        assert await kept(on.tools, "s") == {"visits": 6}
        assert await kept(on.tools, "other") == {"visits": 1}
    change = '[{"op":"increment","path":["visits"],"value":1}]'
    assert [each["stateChanges"] for each in rows] == [change] * 5


async def test_five_parallel_increments_of_an_agent_add_up_to_five(
    sessions: SessionStates, tmp_path: Path
) -> None:
    everybody = asyncio.Barrier(5)

    async def meet(next: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        await everybody.wait()
        return await next(arguments)

    def meet_in_thread(next: Callable[..., Any], run_context: RunContext) -> Any:
        run_context.session_state.append("log", "hook")
        return next({})

    @tool(tool_hooks=[meet, meet_in_thread])
    def visit_together(run: RunContext) -> None:
        run.session_state.increment("visits")

    chosen = [call("visit_together") for _ in range(5)]
    model = ScriptedModel([script("Go", chosen, "done")])
    store = recording_in_memory()
    of_agents = application(model, [visit_together])
    async with bench(of_agents, store, store, tmp_path) as on:
        on.launcher.tools.resources.sessions = sessions
        outcome = await on.launcher.run("Go", agent="worker", session_id="s")
        state = await kept(on.launcher.tools, "s")
        rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert state == {"visits": 5, "log": ["hook"] * 5}
    for row in rows:
        changes = json.loads(row["stateChanges"])
        assert [each["op"] for each in changes] == ["append", "increment"]


async def test_state_of_a_run_without_a_session_is_not_shared(tmp_path: Path) -> None:
    async with service(tmp_path, visit, visit_in_thread) as on:
        async with on.tools.run("One") as one:
            first = await on.tools.call("visit")
            await on.tools.call("visit_in_thread")
            second = await on.tools.call("visit")
        alone = await on.tools.call("visit")

        assert [first.result, second.result, alone.result] == ["0", "2", "0"]
        assert await kept(on.tools, one.thread_id) == {}


async def test_call_sees_its_own_and_earlier_committed_changes(
    tmp_path: Path,
) -> None:
    @tool
    async def change(state: SessionState) -> Any:
        state.set(("a", "b"), [1])
        state.append(("a", "b"), 2)
        state.increment("n", 2.5)
        state.remove("gone")
        state.compare_and_set("old", 1, 2)
        state["a"]["b"] += [3]
        return dict(state)

    async with service(tmp_path, change, initial_state={"gone": 1, "old": 1}) as on:
        outcome = await on.tools.call("change", thread_id="s")
        state = await kept(on.tools, "s")

    assert json.loads(outcome.result or "") == state == {"a": {"b": [1, 2, 3]}, "n": 2.5, "old": 2}


class Away(Exception):
    pass


@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_failed_attempt_changes_no_state(open_service: OpenService, is_async: bool) -> None:
    attempts: list[dict[str, Any]] = []

    def attempt(state: SessionState) -> str:
        attempts.append(dict(state))
        state.increment("visits")
        state.set("by", len(attempts))
        if len(attempts) < 3:
            raise Away
        return "at last"

    async def attempt_async(state: SessionState) -> str:
        return attempt(state)

    made = tool(name="attempt", max_attempts=3)(attempt_async if is_async else attempt)
    async with open_service(made) as on:
        outcome = await on.tools.call("attempt", thread_id="s")
        row = await on.row(outcome)

        assert await kept(on.tools, "s") == {"visits": 1, "by": 3}
    assert attempts == [{}, {}, {}]
    assert (row["status"], row["attempt"]) == ("succeeded", 3)
    assert len(json.loads(row["stateChanges"])) == 2


@pytest.mark.parametrize("how", ["raises", "misfits", "times out", "hook raises"])
async def test_failed_call_changes_no_state(tmp_path: Path, how: str) -> None:
    async def hook(next: Callable[..., Any], run_context: RunContext) -> Any:
        run_context.session_state.set("by", "hook")
        value = await next({})
        if how == "hook raises":
            raise Away
        return value

    @tool(tool_hooks=[hook], timeout=0.05, result=int)
    async def attempt(state: SessionState) -> Any:
        state.set("by", "tool")
        if how == "raises":
            raise Away
        if how == "times out":
            await asyncio.Event().wait()
        return "text" if how == "misfits" else 1

    async with service(tmp_path, attempt) as on:
        outcome = await on.tools.call("attempt", thread_id="s")
        row = await on.row(outcome)

        assert await kept(on.tools, "s") == {}
    assert row["status"] == "failed"
    assert row["stateChanges"] is None


async def test_hook_that_recovers_from_a_tool_error_commits_only_its_changes(
    tmp_path: Path,
) -> None:
    async def hook(next: Callable[..., Any], run_context: RunContext) -> Any:
        run_context.session_state.append("log", "before")
        try:
            return await next({})
        except Away:
            run_context.session_state.append("log", "after")
            return "all the same"

    @tool(tool_hooks=[hook])
    async def attempt(state: SessionState) -> None:
        state.append("log", "tool")
        raise Away

    async with service(tmp_path, attempt) as on:
        outcome = await on.tools.call("attempt", thread_id="s")

        assert outcome.result == "all the same"
        assert await kept(on.tools, "s") == {"log": ["before", "after"]}


async def together(next: Callable[..., Any]) -> Any:
    answers = await asyncio.gather(*(next({"how": n}) for n in range(4)), return_exceptions=True)
    return [type(each).__name__ for each in answers]


def together_in_threads(next: Callable[..., Any]) -> Any:
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(next, {"how": n}) for n in range(4)]
        return [type(each.exception() or each.result()).__name__ for each in answers]


@pytest.mark.parametrize("hook", [together, together_in_threads])
async def test_parallel_attempts_of_a_hook_are_isolated(
    tmp_path: Path, hook: Callable[..., Any]
) -> None:
    @tool(tool_hooks=[hook])
    async def attempt(state: SessionState, how: int) -> int:
        state.append("log", how)
        for _ in range(5 * (4 - how)):
            await asyncio.sleep(0)
        if how % 2:
            raise Away
        return how

    async with service(tmp_path, attempt) as on:
        outcome = await on.tools.call("attempt", {"how": 0}, thread_id="s")
        row = await on.row(outcome)
        state = await kept(on.tools, "s")

    assert outcome.result == '["int","Away","int","Away"]'
    assert sorted(state["log"]) == [0, 2]
    assert row["attempt"] == 4


@pytest.mark.parametrize("max_attempts", [1, 3])
async def test_second_of_two_compare_and_set_calls_gets_a_conflict(
    open_service: OpenService, max_attempts: int
) -> None:
    both = asyncio.Barrier(2)

    @tool(max_attempts=max_attempts)
    async def take(state: SessionState, who: str) -> str:
        state.append("log", who)
        state.compare_and_set("owner", None, who)
        await both.wait()
        return who

    async with open_service(take) as on:
        outcomes = await asyncio.gather(
            *(on.tools.call("take", {"who": each}, thread_id="s") for each in ("ann", "bob"))
        )
        rows = [await on.row(each) for each in outcomes]
        state = await kept(on.tools, "s")

    [winner] = [each.result for each in outcomes if each.result]
    assert sorted(str(each.reason) for each in outcomes) == ["None", "state_conflict"]
    assert state == {"owner": winner, "log": [winner]}
    assert sorted(bool(each["stateChanges"]) for each in rows) == [False, True]


async def test_conflicting_state_change_fails_its_call_immediately(tmp_path: Path) -> None:
    @tool
    async def add(state: SessionState) -> None:
        state.increment("name")

    async with service(tmp_path, add, initial_state={"name": "Ann"}) as on:
        outcome = await on.tools.call("add", thread_id="s")

    assert (outcome.status, outcome.reason) == ("failed", "state_conflict")
    assert "Ann" not in outcome.for_model


def counting(name: str, **options: Any) -> Tool:
    async def run(state: SessionState) -> None:
        state.increment(name)

    return tool(name=name, **options)(run)


async def test_nested_calls_change_one_state_and_each_records_its_own_changes(
    open_service: OpenService,
) -> None:
    @tool
    async def outer(state: SessionState) -> Any:
        state.increment("outer")
        inner = await on.tools.call("inner")
        state.increment("outer")
        return inner.tool_call_id

    async with open_service(outer, counting("inner")) as on:
        outcome = await on.tools.call("outer", thread_id="s")
        rows = {each["name"]: each for each in (await on.rows(outcome.root_plan_id)).tool_calls}

        assert await kept(on.tools, "s") == {"outer": 2, "inner": 1}
    assert len(json.loads(rows["outer"]["stateChanges"])) == 2
    assert len(json.loads(rows["inner"]["stateChanges"])) == 1


async def test_reading_the_session_state_records_no_change(tmp_path: Path) -> None:
    @tool
    async def read(state: SessionState) -> Any:
        copy.deepcopy(state["list"]).append("x")
        return len(state)

    async with service(tmp_path, read, initial_state={"list": []}) as on:
        row = await on.row(await on.tools.call("read", thread_id="s"))

        assert await kept(on.tools, "s") == {"list": []}
    assert (row["result"], row["stateChanges"]) == ("1", None)
