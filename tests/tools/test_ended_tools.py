"""`end_tool` closes a stateful tool's instances, in one or all conversations of the caller."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.tools.service_bench import Service, service
from tests.tools.short_times import PATIENCE, until
from tests.tools.stateful_instances import Workshop, in_use, other_tasks, use
from tracer.context import identity
from tracer.tools import Tool
from tracer.tools.functions import ThreadContextManager, stateful_tool


class Notebook:
    """Holds words, and notes when it is closed."""

    def __init__(self, closed: list[list[str]]) -> None:
        self.words: list[str] = []
        self._closed = closed

    async def execute(self, word: str) -> int:
        """Write a word down."""
        self.words.append(word)
        return len(self.words)

    def close(self) -> None:
        self._closed.append(self.words)


def notebook(name: str, closed: list[list[str]]) -> Tool:
    return stateful_tool(name=name, create=lambda: Notebook(closed), parameters={"type": "object"})


async def write(on: Service, tool: str, who: str | None, session: str) -> str | None:
    with nullcontext() if who is None else identity(token_id=who):
        outcome = await on.tools.call(tool, {"word": f"{tool} {who} {session}"}, thread_id=session)
    return outcome.result


async def test_one_tool_ends_in_one_conversation_of_the_caller(tmp_path: Path) -> None:
    closed: list[list[str]] = []
    async with service(tmp_path, notebook("a", closed), notebook("b", closed)) as on:
        for tool in "ab":
            for who in ("Ann", "Bob", None):
                for session in ("s", "t"):
                    await write(on, tool, who, session)
        with identity(token_id="Ann"):
            await on.tools.end_tool("a", "s")
            await on.tools.end_tool("a", "s")
            await on.tools.end_tool("unknown", "s")
            await on.tools.end_tool("a", "unknown")

        assert closed == [["a Ann s"]]
        assert await write(on, "a", "Ann", "s") == "1"
        assert await write(on, "b", "Ann", "s") == "2"
        assert await write(on, "a", "Bob", "s") == "2"
    assert len(closed) == 13


@pytest.mark.parametrize("who", ["Ann", None])
async def test_one_tool_ends_in_all_conversations_of_the_caller(
    tmp_path: Path, who: str | None
) -> None:
    closed: list[list[str]] = []
    async with service(tmp_path, notebook("a", closed), notebook("b", closed)) as on:
        for tool in "ab":
            for each in ("Ann", "Bob", None):
                for session in ("s", "t", "@"):
                    await write(on, tool, each, session)
        with nullcontext() if who is None else identity(token_id=who):
            async with on.tools.run("Own"):
                await on.tools.call("a", {"word": "of a run without a session"})
                await on.tools.end_tool("a")
                assert sorted(closed) == sorted([[f"a {who} {each}"] for each in ("s", "t", "@")])


async def test_end_tool_waits_for_queued_calls_and_the_next_call_gets_a_new_instance() -> None:
    threads, workshop = ThreadContextManager(close_seconds=PATIENCE), Workshop()
    current = await in_use(threads, "a", workshop.create)
    queued = asyncio.create_task(use(threads, "a", workshop.create))
    await asyncio.sleep(0)
    endings = [asyncio.create_task(threads.end_tool("bench", ["a"])) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = asyncio.create_task(use(threads, "a", workshop.create))
    await asyncio.sleep(0)
    assert workshop.closed == []

    await current.end()
    assert (await queued, await later) == (0, 1)
    await asyncio.gather(*endings)
    await threads.aclose()
    assert workshop.closed == [0, 1]
    assert other_tasks() == set()


async def test_instance_is_closed_if_its_current_call_exceeds_the_end_timeout() -> None:
    threads, workshop = ThreadContextManager(close_seconds=0.01), Workshop()
    using = await in_use(threads, "a", workshop.create)
    await threads.end_tool("bench", ["a"])

    assert workshop.closed == [0]
    await using.end()
    assert await use(threads, "a", workshop.create) == 1
    await threads.aclose()
    assert workshop.closed == [0, 1]


async def test_cancelled_end_tool_still_closes_the_instance() -> None:
    threads, workshop = ThreadContextManager(close_seconds=PATIENCE), Workshop()
    using = await in_use(threads, "a", workshop.create)
    ending = asyncio.create_task(threads.end_tool("bench", ["a"]))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})
    await using.end()

    await until(lambda: workshop.closed == [0])
    await threads.aclose()


async def test_a_tool_cannot_end_itself_during_its_call(tmp_path: Path) -> None:
    class Ender:
        async def execute(self) -> None:
            """End yourself."""
            await on.tools.end_tool("end", "s")

    async with service(tmp_path, stateful_tool(name="end", create=Ender)) as on:
        outcome = await asyncio.wait_for(on.tools.call("end", thread_id="s"), PATIENCE)

    assert outcome.reason == "tool_error"
    assert "called or ended the same tool" in outcome.for_model
