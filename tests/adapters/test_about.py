"""`tracing.about`: who a run is for, in the runs of each agent framework and in spans."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from agents import RunConfig, Runner
from agno.agent import Agent as AgnoAgent
from agno.team import Team
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from tests.adapters import agno_models, langchain_agents, openai_agents_scripts
from tests.adapters.recording import PLENTY_SECONDS, recording, tree_of
from tests.adapters.spans_store import processing
from tests.recordings import runs_of
from tracer.adapters import agno, langchain, openai_agents, pydantic_ai
from tracer.client import Tracing

ABOUT: dict[str, Any] = {
    "user": "ann",
    "session": "s-1",
    "tags": ["beta"],
    "metadata": {"plan": "pro"},
}
ANN = ("ann", "s-1", ["beta"], {"plan": "pro"})

Start = Callable[[], Awaitable[Any]]


def _langchain_agent() -> Any:
    return langchain_agents.new_agent(langchain_agents.in_order("done"), [])


def _langchain(**config: Any) -> Start:
    return lambda: _langchain_agent().ainvoke(langchain_agents.ask("Hello."), config=config)


def _langchain_sync() -> Awaitable[Any]:
    return asyncio.to_thread(_langchain_agent().invoke, langchain_agents.ask("Hello."))


async def _langchain_streamed() -> None:
    async for _ in _langchain_agent().astream(langchain_agents.ask("Hello.")):
        pass


def _openai(**options: Any) -> Start:
    agent = openai_agents_scripts.agent_of(openai_agents_scripts.DONE)
    return lambda: Runner.run(agent, "Hello.", **options)


async def _openai_streamed() -> None:
    agent = openai_agents_scripts.agent_of(openai_agents_scripts.DONE)
    async for _ in Runner.run_streamed(agent, "Hello.").stream_events():
        pass


def _pydantic_ai(**options: Any) -> Start:
    return lambda: Agent(TestModel(), name="planner").run("Hello.", **options)


async def _pydantic_ai_continued() -> None:
    agent = Agent(TestModel(), name="planner")
    result = await agent.run("Hello.")
    await agent.run("And then?", message_history=result.all_messages())


async def _pydantic_ai_streamed() -> None:
    async with Agent(TestModel(), name="planner").run_stream("Hello.") as result:
        await result.get_output()


def _agno(agent: AgnoAgent | None = None, **options: Any) -> Start:
    return lambda: (agent or _agno_agent()).arun("Hello.", **options)


def _agno_agent(**options: Any) -> AgnoAgent:
    return agno_models.agent_of(agno_models.DONE, agno_models.DONE, **options)


async def _agno_twice() -> None:
    agent = _agno_agent()  # it keeps the session that its first run creates
    await agent.arun("Hello.")
    await agent.arun("Hello.")


async def _agno_team() -> None:
    model = agno_models.AnsweringModel()
    await Team(name="crew", model=model, members=[_agno_agent()]).arun("Hello.")


def _agno_sync() -> Awaitable[Any]:
    return asyncio.to_thread(_agno_agent().run, "Hello.")


async def _agno_streamed() -> None:
    async for _ in _agno_agent().arun("Hello.", stream=True):
        pass


@pytest.mark.parametrize(
    ("install", "start", "expected"),
    [
        (langchain.install, _langchain(), ANN),
        (langchain.install, _langchain_sync, ANN),
        (langchain.install, _langchain_streamed, ANN),
        (
            langchain.install,
            _langchain(metadata={"user_id": "bob", "thread_id": "t-2", "x": 1}, tags=["own"]),
            ("bob", "t-2", ["beta", "own"], {"plan": "pro", "x": 1}),
        ),
        (openai_agents.install, _openai(), ANN),
        (openai_agents.install, _openai_streamed, ANN),
        (
            openai_agents.install,
            _openai(run_config=RunConfig(group_id="g-2")),
            ("ann", "g-2", *ANN[2:]),
        ),
        (pydantic_ai.install, _pydantic_ai(), ANN),
        (pydantic_ai.install, _pydantic_ai_continued, ANN),
        (pydantic_ai.install, _pydantic_ai_streamed, ANN),
        (pydantic_ai.install, _pydantic_ai(conversation_id="c-2"), ("ann", "c-2", *ANN[2:])),
        (agno.install, _agno(), ANN),
        (agno.install, _agno_twice, ANN),
        (agno.install, _agno_team, ANN),
        (agno.install, _agno_sync, ANN),
        (agno.install, _agno_streamed, ANN),
        (agno.install, _agno(session_id="a-2", user_id="bob"), ("bob", "a-2", *ANN[2:])),
        (agno.install, _agno(_agno_agent(session_id="a-3")), ANN),
    ],
)
async def test_run_of_a_framework_has_the_values_of_the_block(
    tmp_path: Path,
    install: Callable[[Tracing], Callable[[], None]],
    start: Start,
    expected: tuple[Any, ...],
) -> None:
    with recording(tmp_path) as (tracing, store):
        uninstall = install(tracing)
        try:
            with tracing.about(**ABOUT):
                await start()
        finally:
            uninstall()
        assert await asyncio.to_thread(tracing.flush, PLENTY_SECONDS)
        runs = runs_of(store)

    assert runs
    for run in runs:
        metadata = orjson.loads(run.run_metadata or "null")
        assert (run.subject, run.session_id, run.tags, metadata) == expected


async def test_frameworks_own_session_is_recorded_without_a_session_in_the_block(
    tmp_path: Path,
) -> None:
    agent = _agno_agent()
    with recording(tmp_path) as (tracing, store):
        uninstall = agno.install(tracing)
        try:
            with tracing.about(user="ann"):
                await agent.arun("Hello.")
        finally:
            uninstall()
        await tree_of(store)
        [run] = runs_of(store)

    assert (run.subject, run.session_id) == ("ann", agent.session_id)


def test_spans_that_start_in_the_block_have_its_user_and_session(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):
        tracer = provider.get_tracer("t")
        with (
            tracer.start_as_current_span("request"),
            store.tracing.about(**ABOUT),
            tracer.start_as_current_span("agent", attributes={"user.id": "bob"}),
        ):
            tracer.start_span("chat").end()
        assert provider.force_flush()

    assert {span.name: span.attributes for span in store.written} == {
        "request": {},
        "agent": {"user.id": "bob", "session.id": "s-1"},
        "chat": {"user.id": "ann", "session.id": "s-1"},
    }
