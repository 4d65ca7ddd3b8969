"""The end of a run releases its caller and its own tool instances."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import application, bench, script
from tests.tools.service_bench import service
from tracer import stateful_tool
from tracer.context import ToolContext, current_identity, identity
from tracer.errors import MissingIdentity
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import tool
from tracer.tools.parameters import UserId
from tracer.tools.run import run_of


async def check_is_over(context: ToolContext) -> None:
    assert context.identity is not None
    assert context.identity.is_over
    with pytest.raises(MissingIdentity, match="has ended"):
        await run_of(context).user()


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_run_of_the_tool_service_releases_its_caller_at_its_end(
    tmp_path: Path, how: str
) -> None:
    contexts: list[ToolContext] = []
    begun = asyncio.Event()

    async def body() -> None:
        async with on.tools.run("Over") as context:
            contexts.append(context)
            begun.set()
            assert (await run_of(context).user()).user_id == "ann"
            if how == "raises":
                raise ValueError("no")
            if how == "is cancelled":
                await asyncio.Event().wait()

    async with service(tmp_path) as on:
        with identity(token_id="ann"):
            running = asyncio.create_task(body())
            await begun.wait()
            if how == "is cancelled":
                running.cancel()
            await asyncio.wait({running})
            if how == "raises":
                assert isinstance(running.exception(), ValueError)
            await check_is_over(contexts[0])


async def test_task_that_outlives_its_run_has_no_caller(tmp_path: Path) -> None:
    contexts: list[ToolContext] = []
    let_go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def later() -> Any:
        await let_go.wait()
        return current_identity(), await on.launcher.tools.call("who")

    @tool
    async def who(user_id: UserId, context: ToolContext) -> None:
        contexts.append(context)
        if not late:
            late.append(asyncio.create_task(later(), context=copy_context()))

    model = ScriptedModel([script("Go", [call("who")], "done")])
    store = recording_in_memory()
    of_agents = application(model, [who])
    of_agents.registry.register(who)
    async with bench(of_agents, store, store, tmp_path) as on:
        with identity(token_id="ann"):
            outcome = await on.launcher.run("Go", agent="worker")
        let_go.set()
        found, refused = await late[0]

    assert outcome.status == "succeeded"
    await check_is_over(contexts[0])
    assert found is None
    assert refused.reason == "missing_identity"
    assert len(contexts) == 1


class Notebook:
    """Notes when it is closed."""

    def __init__(self, closed: list[Notebook]) -> None:
        self._closed = closed

    async def execute(self) -> None: ...

    async def aclose(self) -> None:
        self._closed.append(self)


@pytest.mark.parametrize("session_id", [None, "s"])
async def test_stateful_tool_instances_of_a_run_are_closed_when_it_ends(
    tmp_path: Path, session_id: str | None
) -> None:
    closed: list[Notebook] = []
    note = stateful_tool(
        name="note", create=lambda: Notebook(closed), parameters={"type": "object"}
    )
    model = ScriptedModel([script("Go", [call("note")], [call("note")], "done")])
    store = recording_in_memory()
    of_agents = application(model, [note])
    of_agents.registry.register(note)
    async with bench(of_agents, store, store, tmp_path) as on:
        await on.launcher.run("Go", agent="worker", session_id=session_id)
        of_an_agent = len(closed)
        tools = on.launcher.tools
        async with tools.run("Two", session_id=session_id):
            await tools.call("note")
            await tools.call("note")
        of_the_service = len(closed) - of_an_agent
        await tools.call("note", thread_id=session_id)
        of_a_call = len(closed) - of_an_agent - of_the_service

    ended = 0 if session_id else 1
    assert (of_an_agent, of_the_service, of_a_call) == (ended, ended, ended)
    assert len(closed) == (1 if session_id else 3)
