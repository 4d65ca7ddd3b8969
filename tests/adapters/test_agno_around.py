"""Agno: sessions, runs inside other recorded work, store outages, and errors of the adapter."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from agents import Agent as OpenAIAgent
from agents import Runner, set_trace_processors
from agents.testing import ScriptedModel, assistant_message
from agno.db.in_memory import InMemoryDb
from agno.memory import MemoryManager
from agno.tools.function import FunctionCall

from tests.adapters.agno_models import DONE, Answer, agent_of, answers, calling, divide
from tests.adapters.installed import installed
from tests.adapters.outline import calls_of, outline
from tests.adapters.recording import RecordedStore, tree_of, trees_of
from tests.recorder.stores import CommandedStore
from tests.recordings import messages_of, runs_of
from tracer.adapters import agno, openai_agents
from tracer.client import Tracing
from tracer.client.work import ToolCall, current_work
from tracer.recorder import Spool


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    with installed(agno.install, tmp_path) as store:
        yield store
    assert agno.open_plans() == []


@pytest.mark.parametrize("is_async", [True, False])
async def test_tool_function_starts_after_its_call_is_stored(
    store: RecordedStore, is_async: bool
) -> None:
    store.seconds = 0.05  # so that a tool that did not wait would see it
    seen: list[bool] = []

    def look() -> str:
        work = current_work()
        assert isinstance(work, ToolCall)
        seen.append(work.is_durable)
        return ""

    async def look_too() -> str:
        return look()

    if is_async:
        chosen = calling(("look_too", {}, "x"))
        await agent_of(chosen, DONE, tools=[look_too]).arun("Look.")
    else:
        agent = agent_of(calling(("look", {}, "x")), DONE, tools=[look])
        await asyncio.to_thread(agent.run, "Look.")

    assert seen == [True]


@pytest.mark.parametrize("is_async", [True, False])
async def test_model_call_that_updates_memories_is_a_round_of_the_run(
    store: RecordedStore, is_async: bool
) -> None:
    agent = agent_of(
        DONE,
        db=InMemoryDb(),  # type: ignore[no-untyped-call]
        memory_manager=MemoryManager(model=answers(DONE)),
        update_memory_on_run=True,
    )
    await (agent.arun("Look.") if is_async else asyncio.to_thread(agent.run, "Look."))

    assert outline(await tree_of(store)) == [
        "plan of planner: succeeded",
        "  round: succeeded",
        "  round: succeeded",
    ]


async def test_agent_run_inside_a_recorded_call_is_its_sub_plan(store: RecordedStore) -> None:
    async with store.tracing.tool_call("delegate") as call:
        await agent_of(DONE).arun("Help.")
        call.finish("helped")

    assert outline(await tree_of(store)) == [
        "plan of nobody: succeeded",
        "  delegate(): succeeded",
        "    plan of planner: succeeded",
        "      round: succeeded",
    ]


async def test_round_records_model_tokens_messages_and_cost(
    store: RecordedStore,
) -> None:
    await agent_of(Answer("Hi.", tokens=(70, 7)), instructions="Be kind.").arun("Hello.")

    tree = await tree_of(store)
    [round] = tree["agentExecutions"][0]["thinkActs"]
    assert (round["model"], round["inputTokens"], round["outputTokens"]) == ("gpt-5-mini", 70, 7)
    assert (round["thought"], round["costUsd"] > 0) == ("Hi.", True)
    messages = messages_of(store, UUID(tree["planId"]))
    assert json.loads(messages[UUID(round["thinkActId"])]) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello."},
    ]


async def test_run_of_another_framework_in_an_agno_tool_is_a_sub_plan(
    store: RecordedStore,
) -> None:
    set_trace_processors([])
    uninstall = openai_agents.install(store.tracing)

    async def ask(question: str) -> str:
        model = ScriptedModel([[assistant_message("low")]])
        return str((await Runner.run(OpenAIAgent("diver", model=model), question)).final_output)

    await agent_of(calling(("ask", {"question": "When?"}, "x")), DONE, tools=[ask]).arun("Go.")
    uninstall()

    [call] = calls_of(await tree_of(store))
    assert call["result"] == "low"
    assert [each["agentName"] for each in call["subPlans"]] == ["diver"]


async def test_run_records_its_session_id_and_subject(store: RecordedStore) -> None:
    await agent_of(DONE).arun("Hello.", session_id="thread-7", user_id="u-1")

    assert await tree_of(store)
    [run] = runs_of(store)
    assert (run.session_id, run.subject) == ("thread-7", "u-1")


async def test_agent_succeeds_if_recording_raises(
    store: RecordedStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Tracing):
        def think_act(self, *args: Any, **options: Any) -> Any:
            raise LookupError("broken")

    store.tracing.__class__ = Broken
    agent = agent_of(calling(("divide", '{"a": 4, "b": 2}', "x")), DONE, tools=[divide])

    assert (await agent.arun("Divide.")).content == "done"
    assert "adapter_failed" in caplog.text


async def test_agent_continues_while_the_store_is_down(tmp_path: Path) -> None:
    store = CommandedStore()
    store.down = True
    with Tracing(
        lambda: nullcontext(store), lambda: Spool(tmp_path / "spool.sqlite3"), buffered=True
    ) as tracing:
        uninstall = agno.install(tracing)
        agent = agent_of(calling(("divide", '{"a": 4, "b": 2}', "x")), DONE, tools=[divide])
        output = await agent.arun("Divide.")
        uninstall()
        await asyncio.to_thread(tracing.flush)

    assert output.content == "done"


async def test_uninstalling_the_adapter_stops_recording_and_restores_agno(
    tmp_path: Path,
) -> None:
    execute = FunctionCall.__dict__["execute"]
    with installed(agno.install, tmp_path) as store:
        assert FunctionCall.__dict__["execute"] is not execute
        agno.install(store.tracing)()
        await agent_of(DONE).arun("Hello.")

        assert await trees_of(store) == []
        assert FunctionCall.__dict__["execute"] is execute


def test_import_without_agno_raises_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tracer.adapters.agno")
    monkeypatch.setitem(sys.modules, "agno.agent", None)

    with pytest.raises(ImportError, match=r"tracer-lineage\[agno\]"):
        importlib.import_module("tracer.adapters.agno")
