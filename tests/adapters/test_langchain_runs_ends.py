"""LangChain runs that fail, are cancelled or interrupted: each leaves no record open."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from tests.adapters.langchain_agents import (
    PLENTY_SECONDS,
    Says,
    ask,
    cancelled,
    chooses,
    echo,
    in_order,
    new_agent,
    only_to,
)
from tests.adapters.outline import calls_of, outline
from tests.adapters.recording import tree_of, trees_of
from tests.recordings import run_of


class Hangs(Says):
    """Never answers."""

    has_begun: asyncio.Event

    async def _agenerate(
        self, messages: list[BaseMessage], *rest: Any, **options: Any
    ) -> ChatResult:
        self.has_begun.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_cancelled_tool_call_of_a_sub_agent_cancels_its_ancestors(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        has_begun = asyncio.Event()

        @tool
        async def hang(text: str) -> str:
            """Hangs."""
            has_begun.set()
            await asyncio.Event().wait()
            return text

        researcher = new_agent(
            in_order(chooses(("hang", {"text": "a"}, "call_0"))), [hang], name="researcher"
        )

        @tool
        async def delegate(text: str) -> str:
            """Delegates."""
            return str(await researcher.ainvoke(ask(text)))

        planner = new_agent(
            in_order(
                chooses(("delegate", {"text": "b"}, "call_0"), ("echo", {"text": "c"}, "call_1"))
            ),
            [delegate, echo],
            name="planner",
        )
        await cancelled(planner.ainvoke(ask("go"), {"callbacks": [recorder]}), has_begun)

        assert outline(await tree_of(store)) == [
            "plan of planner: cancelled",
            "  round: succeeded",
            '    delegate({"text":"b"}): cancelled',
            "      plan of researcher: cancelled",
            "        round: succeeded",
            '          hang({"text":"a"}): cancelled',
            '    echo({"text":"c"}): succeeded',
        ]


async def test_cancelled_model_call_is_recorded_with_and_without_an_agent(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        config: Any = {"callbacks": [recorder]}
        model = Hangs(answer=lambda _: AIMessage(""), has_begun=asyncio.Event())
        await cancelled(model.ainvoke("go", config), model.has_begun)
        model = Hangs(answer=lambda _: AIMessage(""), has_begun=asyncio.Event())
        await cancelled(new_agent(model, []).ainvoke(ask("go"), config), model.has_begun)

        assert [outline(tree) for tree in await trees_of(store)] == [
            ["plan of nobody: cancelled", "  round: cancelled"],
            ["plan of LangGraph: cancelled", "  round: cancelled"],
        ]


async def test_tool_call_without_an_agent_is_cancelled_with_its_task(
    tmp_path: Path,
) -> None:
    with only_to(tmp_path) as (recorder, store):
        has_begun = asyncio.Event()

        @tool
        async def hang(text: str) -> str:
            """Hangs."""
            has_begun.set()
            await asyncio.Event().wait()
            return text

        await cancelled(hang.ainvoke({"text": "a"}, {"callbacks": [recorder]}), has_begun)

        assert outline(await tree_of(store)) == [
            "plan of nobody: cancelled",
            '  hang({"text":"a"}): cancelled',
        ]


async def test_tool_call_that_the_agent_times_out_is_cancelled(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        patience = asyncio.timeout(PLENTY_SECONDS)

        @tool
        async def hang(text: str) -> str:
            """Hangs."""
            patience.reschedule(0)  # it is over
            await asyncio.Event().wait()
            return text

        @tool
        async def patient(text: str) -> str:
            """Waits for a while."""
            try:
                async with patience:
                    return str(await hang.ainvoke({"text": text}))
            except TimeoutError:
                return "never mind"

        agent = new_agent(
            in_order(chooses(("patient", {"text": "a"}, "call_0")), "done"), [patient]
        )
        await agent.ainvoke(ask("go"), {"callbacks": [recorder]})

        [call] = calls_of(await tree_of(store))
        assert (call["status"], call["result"]) == ("succeeded", "never mind")
        [within] = call["toolCalls"]
        assert (within["name"], within["status"]) == ("hang", "cancelled")


async def test_exception_of_a_tool_fails_the_agent(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):

        @tool
        async def fail(text: str) -> str:
            """Fails."""
            raise ConnectionError(f"no line for {text}")

        agent = new_agent(in_order(chooses(("fail", {"text": "a"}, "call_0"))), [fail])
        with pytest.raises(ConnectionError, match="no line for a"):
            await agent.ainvoke(ask("go"), {"callbacks": [recorder]})

        tree = await tree_of(store)
        assert outline(tree) == [
            "plan of LangGraph: failed",
            "  round: succeeded",
            '    fail({"text":"a"}): failed (tool_error)',
        ]
        assert tree["error"]["message"] == "no line for a"


async def test_exception_of_the_model_fails_the_round(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):

        def raises(messages: list[BaseMessage]) -> AIMessage:
            raise ConnectionError("no model there")

        model: BaseChatModel = Says(answer=raises)
        agent = new_agent(model, [])
        with pytest.raises(ConnectionError, match="no model there"):
            await asyncio.to_thread(agent.invoke, ask("go"), {"callbacks": [recorder]})

        tree = await tree_of(store)
        assert outline(tree) == ["plan of LangGraph: failed", "  round: failed (model_error)"]
        [think_act] = tree["agentExecutions"][0]["thinkActs"]
        assert think_act["error"]["type"] == "ConnectionError"


async def test_streamed_run_is_cancelled_if_its_reader_stops(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        agent = new_agent(in_order(chooses(("echo", {"text": "a"}, "call_0")), "done"), [echo])
        config = {"callbacks": [recorder]}
        stream = agent.astream(ask("go"), config)
        await anext(stream)
        await stream.aclose()
        sync_stream = agent.stream(ask("go"), config)
        next(sync_stream)
        sync_stream.close()
        async for _ in agent.astream(ask("go"), config):
            break
        gc.collect()
        async with asyncio.timeout(PLENTY_SECONDS):
            while recorder.under_way:  # noqa: ASYNC110 - the library says no word of it
                await asyncio.sleep(0)

        for tree in await trees_of(store):
            assert (tree["status"], tree["reason"]) == ("cancelled", None)
            [call] = calls_of(tree)
            assert (call["status"], call["reason"]) == ("cancelled", "not_reached")


async def test_interrupted_run_is_deferred_and_resumes_as_a_new_run(
    tmp_path: Path,
) -> None:
    with only_to(tmp_path) as (recorder, store):

        @tool
        def approve(text: str) -> str:
            """Asks a person."""
            return str(interrupt(f"May I {text}?"))

        agent = new_agent(
            in_order(
                chooses(("echo", {"text": "a"}, "call_0"), ("approve", {"text": "b"}, "call_1")),
                "done",
            ),
            [echo, approve],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "thread 1"}, "callbacks": [recorder]}
        await agent.ainvoke(ask("go"), config)
        await agent.ainvoke(Command(resume="yes"), config)

        first, second = await trees_of(store)
        assert (first["status"], first["reason"]) == ("cancelled", "deferred")
        assert [(call["name"], call["status"], call["reason"]) for call in calls_of(first)] == [
            ("echo", "succeeded", None),
            ("approve", "cancelled", "deferred"),
        ]
        assert (second["status"], second["userRequest"]) == ("succeeded", "yes")
        [call] = calls_of(second)
        assert (call["name"], call["result"], call["providerCallId"]) == (
            "approve",
            "yes",
            "call_1",
        )
        runs = [run_of(store, UUID(tree["planId"])) for tree in (first, second)]
        assert {run.session_id for run in runs} == {"thread 1"}


async def test_interrupt_in_a_sub_agent_marks_its_ancestors_deferred(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):

        @tool
        def approve(text: str) -> str:
            """Asks a person."""
            return str(interrupt(f"May I {text}?"))

        researcher = new_agent(
            in_order(chooses(("approve", {"text": "a"}, "call_0"))), [approve], name="researcher"
        )

        @tool
        async def delegate(text: str) -> str:
            """Delegates."""
            return str(await researcher.ainvoke(ask(text)))

        planner = new_agent(
            in_order(chooses(("delegate", {"text": "b"}, "call_0"))),
            [delegate],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "thread 1"}, "callbacks": [recorder]}
        await planner.ainvoke(ask("go"), config)

        assert outline(await tree_of(store)) == [
            "plan of LangGraph: cancelled (deferred)",
            "  round: succeeded",
            '    delegate({"text":"b"}): cancelled (deferred)',
            "      plan of researcher: cancelled (deferred)",
            "        round: succeeded",
            '          approve({"text":"a"}): cancelled (deferred)',
        ]
