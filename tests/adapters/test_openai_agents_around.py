"""OpenAI Agents SDK: sessions, hooks, runs inside recorded work, and errors of the adapter."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from agents import (
    InputGuardrail,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    function_tool,
    set_trace_processors,
)
from agents.run import AgentRunner
from agents.testing import assistant_message

from tests.adapters.installed import installed
from tests.adapters.openai_agents_scripts import DONE, Tide, agent_of, call_of, divide
from tests.adapters.outline import outline
from tests.adapters.recording import RecordedStore, tree_of, trees_of
from tests.recordings import runs_of
from tests.trees import read_tree
from tracer.adapters import openai_agents
from tracer.adapters.openai_agents.run import OpenAIRun
from tracer.client import Tracing
from tracer.lineage import Payloads


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    set_trace_processors([])
    with installed(openai_agents.install, tmp_path) as store:
        yield store


async def test_payloads_are_omitted_if_the_sdk_excludes_sensitive_data(
    store: RecordedStore,
) -> None:
    secret = "4711"

    @function_tool
    def fail(code: str) -> str:
        raise ValueError(code)

    agent = agent_of([call_of("fail", f'{{"code": "{secret}"}}')], [assistant_message(secret)])
    agent.tools = [fail]
    config = RunConfig(trace_include_sensitive_data=False)
    await Runner.run(agent, secret, run_config=config)

    tree = await tree_of(store)
    assert outline(tree)[2] == "    fail(): failed (tool_error)"
    assert secret not in str(tree)


async def test_run_with_its_own_hooks_still_calls_them_and_records_its_session(
    store: RecordedStore,
) -> None:
    seen: list[str] = []

    class Seen(RunHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            seen.append(f"{tool.name}: {result}")

    session = SQLiteSession("thread-7")
    agent = agent_of([call_of("divide", '{"a": 4, "b": 2}')], DONE, tools=[divide])
    await Runner.run(agent, "Divide.", session=session, hooks=Seen())
    session.close()

    assert seen == ["divide: 2.0"]
    assert (await tree_of(store))["status"] == "succeeded"
    [run] = runs_of(store)
    assert run.session_id == "thread-7"


async def test_tool_function_starts_after_its_call_is_stored(store: RecordedStore) -> None:
    seen: list[str] = []

    @function_tool
    async def look() -> str:
        [summary] = runs_of(store)
        rows = await read_tree(store, summary.root_plan_id, Payloads.FULL)
        seen.extend(call["status"] for call in rows.tool_calls)
        return ""

    await Runner.run(agent_of([call_of("look")], DONE, tools=[look]), "Look.")

    assert seen == ["running"]


async def test_agent_run_inside_a_recorded_call_is_its_sub_plan(store: RecordedStore) -> None:
    async with store.tracing.tool_call("delegate") as call:
        await Runner.run(agent_of(DONE), "Help.")
        call.finish("helped")

    assert outline(await tree_of(store)) == [
        "plan of nobody: succeeded",
        "  delegate(): succeeded",
        "    plan of planner: succeeded",
        "      round: succeeded",
    ]


async def test_agent_succeeds_if_recording_raises(
    store: RecordedStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Tracing):
        def think_act(self, *args: Any, **options: Any) -> Any:
            raise LookupError("broken")

    store.tracing.__class__ = Broken
    agent = agent_of([call_of("divide", '{"a": 4, "b": 2}')], DONE, tools=[divide])

    result = await Runner.run(agent, "Divide.")

    assert result.final_output == "done"
    assert "adapter_failed" in caplog.text


async def test_uninstalling_the_adapter_stops_recording_and_restores_the_sdk(
    tmp_path: Path,
) -> None:
    hooked = [AgentRunner.__dict__["_run_impl"], InputGuardrail.__dict__["run"]]
    with installed(openai_agents.install, tmp_path) as store:
        assert AgentRunner.__dict__["_run_impl"] is not hooked[0]
        openai_agents.install(store.tracing)()
        await Runner.run(agent_of(DONE), "Hello.")

        assert await trees_of(store) == []
        assert [AgentRunner.__dict__["_run_impl"], InputGuardrail.__dict__["run"]] == hooked


async def test_ended_run_leaks_no_objects(store: RecordedStore) -> None:
    tide = Tide()
    run = asyncio.create_task(Runner.run(agent_of([call_of("tide")], tools=[tide.tool]), "Plan."))
    await tide.asked.acquire()
    kept = WeakSet(each for each in gc.get_objects() if type(each) is OpenAIRun)
    assert kept
    run.cancel()
    await asyncio.wait([run])
    del run

    async with asyncio.timeout(60):
        while kept:
            await tree_of(store)
            gc.collect()


def test_import_without_the_sdk_raises_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tracer.adapters.openai_agents")
    monkeypatch.setitem(sys.modules, "agents", None)

    with pytest.raises(ImportError, match=r"tracer-lineage\[openai-agents\]"):
        importlib.import_module("tracer.adapters.openai_agents")
