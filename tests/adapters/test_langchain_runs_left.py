"""LangChain work that continues after its run has ended, and the state that the handler keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from tests.adapters.langchain_agents import (
    PLENTY_SECONDS,
    Streams,
    ask,
    cancelled,
    chooses,
    echo,
    in_order,
    new_agent,
    only_to,
)
from tests.adapters.outline import calls_of
from tests.adapters.recording import tree_of, trees_of
from tracer.records import new_id


async def test_handler_keeps_no_state_of_ended_runs(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        chain = RunnableLambda(lambda text: text) | in_order("done")
        for _ in range(20):
            await chain.ainvoke("go", {"callbacks": [recorder]})
            await in_order("done").ainvoke("go", {"callbacks": [recorder]})
            await echo.ainvoke({"text": "a"}, {"callbacks": [recorder]})
        assert recorder.under_way == 0

        assert {tree["status"] for tree in await trees_of(store)} == {"succeeded"}


async def test_stream_read_by_several_tasks_is_recorded_as_succeeded(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        agent = new_agent(in_order(chooses(("echo", {"text": "a"}, "call_0")), "done"), [echo])
        config: Any = {"callbacks": [recorder]}
        model = in_order("one two", model=Streams)
        stream: Any
        for stream in (agent.astream(ask("go"), config), model.astream("go", config)):
            with suppress(StopAsyncIteration):
                while True:
                    await asyncio.create_task(anext(stream))

        assert [tree["status"] for tree in await trees_of(store)] == ["succeeded", "succeeded"]


async def test_work_that_outlives_its_tool_is_recorded_below_the_tool_call(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        may_begin = asyncio.Event()
        left: list[asyncio.Task[Any]] = []
        researcher = new_agent(
            in_order(chooses(("echo", {"text": "a"}, "call_0")), "done"), [echo], name="researcher"
        )

        async def later(text: str) -> None:
            await may_begin.wait()
            await researcher.ainvoke(ask(text))

        @tool
        async def begin(text: str) -> str:
            """Begins."""
            left.append(asyncio.create_task(later(text)))
            return "begun"

        planner = new_agent(
            in_order(chooses(("begin", {"text": "b"}, "call_0")), "done"), [begin], name="planner"
        )
        await planner.ainvoke(ask("go"), {"callbacks": [recorder]})
        may_begin.set()
        await left[0]

        [call] = calls_of(await tree_of(store))
        assert [(each["agentName"], each["status"]) for each in call["subPlans"]] == [
            ("researcher", "succeeded")
        ]


async def test_work_of_a_thread_that_outlives_a_cancelled_run_belongs_to_the_run(
    tmp_path: Path,
) -> None:
    with only_to(tmp_path) as (recorder, store):
        has_begun, is_cancelled = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        researcher = new_agent(in_order("done"), [], name="researcher")

        @tool
        def delegate(text: str) -> str:
            """Delegates, too late."""
            loop.call_soon_threadsafe(has_begun.set)
            assert is_cancelled.wait(PLENTY_SECONDS)
            answer = str(researcher.invoke(ask(text)))
            loop.call_soon_threadsafe(ended.set)
            return answer

        planner = new_agent(
            in_order(chooses(("delegate", {"text": "b"}, "call_0"))), [delegate], name="planner"
        )
        await cancelled(planner.ainvoke(ask("go"), {"callbacks": [recorder]}), has_begun)
        is_cancelled.set()
        async with asyncio.timeout(PLENTY_SECONDS):
            await ended.wait()

        [call] = calls_of(await tree_of(store))
        assert call["status"] == "cancelled"
        assert [(each["agentName"], each["status"]) for each in call["subPlans"]] == [
            ("researcher", "succeeded")
        ]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_process_forked_while_a_hook_runs_can_record(tmp_path: Path) -> None:
    with only_to(tmp_path) as (recorder, store):
        config: Any = {"callbacks": [recorder]}
        is_within, may_go_on = threading.Event(), threading.Event()

        def held_up() -> UUID:
            is_within.set()
            assert may_go_on.wait(PLENTY_SECONDS)
            return new_id()

        store.tracing.ids = held_up
        thread = threading.Thread(target=in_order("done").invoke, args=("go", config))
        thread.start()
        assert is_within.wait(PLENTY_SECONDS)
        child = os.fork()
        if child == 0:
            signal.alarm(int(PLENTY_SECONDS))
            with suppress(BaseException):
                store.tracing.ids = new_id
                in_order("done").invoke("go", config)
                os._exit(0)
            os._exit(1)
        may_go_on.set()
        thread.join()
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
