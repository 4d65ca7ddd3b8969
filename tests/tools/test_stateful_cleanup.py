"""Cleanup of the stateful tool instances of ended conversations."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.tools.short_times import PATIENCE, until
from tests.tools.stateful_instances import Workshop, other_tasks
from tracer.concurrency import MAX_THREADS, run_in_thread
from tracer.context import current_identity, current_tool_context, identity, tool_context_bound
from tracer.tools.functions import MAX_CLEANUPS, Create, ThreadContextManager


class Breaks:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def aclose(self) -> None:
        raise self.error


class BreaksInThread(Breaks):
    def aclose(self) -> None:  # type: ignore[override]
        raise self.error


class Hangs:
    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.swallowed = 0

    async def aclose(self) -> None:
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.swallowed += 1


class HangsInThread:
    def __init__(self) -> None:
        self.let_go = threading.Event()

    def close(self) -> None:
        assert self.let_go.wait(PATIENCE)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("what nobody may read"),
        SystemExit("what nobody may read"),
        KeyboardInterrupt("what nobody may read"),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", [Breaks, BreaksInThread])
async def test_failing_cleanup_is_logged_without_its_message(
    error: BaseException, kind: type[Breaks], caplog: pytest.LogCaptureFixture
) -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    for tool_name, create in (("x", workshop.create), ("breaks", lambda: kind(error))):
        async with threads.instance("a", tool_name, create):
            pass
    await threads.aclose()

    assert workshop.closed == [0]
    [line] = caplog.records
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["tool"] == "breaks"
    assert fields.get("error", "CancelledError") == type(error).__name__
    assert "what nobody may read" not in str(line.__dict__)


async def test_hanging_cleanup_is_ended_by_a_timeout_and_blocks_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads, workshop = ThreadContextManager(close_seconds=0.01), Workshop()
    hanging: list[Hangs | HangsInThread] = [Hangs(), HangsInThread()]
    makers: list[Create] = [workshop.create, lambda: hanging[0], lambda: hanging[1]]
    for number, create in enumerate(makers):
        async with threads.instance("a", f"tool-{number}", create):
            pass
    await threads.aclose()

    assert workshop.closed == [0]
    assert [line.fields["tool"] for line in caplog.records] == ["tool-2", "tool-1"]  # type: ignore[attr-defined]
    cleanups = weakref.WeakSet(other_tasks())
    for each in hanging:
        each.let_go.set()
    await until(lambda: not other_tasks())
    await until(lambda: not cleanups)  # nothing refers to a cleanup that has ended


async def test_synchronous_cleanup_runs_outside_the_thread_pool_of_tools() -> None:
    threads, let_go, closed = ThreadContextManager(close_seconds=PATIENCE), threading.Event(), []
    all_taken = threading.Barrier(MAX_THREADS + 1)

    class InThread:
        def close(self) -> None:
            closed.append(self)

    def hog() -> None:
        all_taken.wait(PATIENCE)
        assert let_go.wait(PATIENCE)

    async with threads.instance("a", "x", InThread) as instance:
        pass
    hogs = [asyncio.create_task(run_in_thread(hog)) for _ in range(MAX_THREADS)]
    await asyncio.to_thread(all_taken.wait, PATIENCE)
    await threads.aclose()
    assert closed == [instance]

    let_go.set()
    await asyncio.gather(*hogs)


async def test_concurrent_cleanups_are_limited_and_complete() -> None:
    threads, at_once, most, closed = ThreadContextManager(), 0, 0, 0

    class Slow:
        async def aclose(self) -> None:
            nonlocal at_once, most, closed
            at_once += 1
            most = max(most, at_once)
            for _ in range(3):
                await asyncio.sleep(0)
            at_once -= 1
            closed += 1

    for number in range(3 * MAX_CLEANUPS):
        async with threads.instance(str(number), "x", Slow):
            pass
    await threads.aclose()

    assert (closed, most) == (3 * MAX_CLEANUPS, MAX_CLEANUPS)


class Entered:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def __aenter__(self) -> str:
        self.log.append("entered")
        return "what is used"

    async def __aexit__(self, *error: object) -> None:
        assert error == (None, None, None)
        self.log.append("left")


class ClosedAndEntered(Entered):
    def close(self) -> None:
        self.log.append("closed")


class ClosedInAllWays(ClosedAndEntered):
    def aclose(self) -> None:
        self.log.append("aclosed")


@pytest.mark.parametrize(
    ("kind", "log"),
    [
        (Entered, ["entered", "left"]),
        (ClosedAndEntered, ["closed"]),
        (ClosedInAllWays, ["aclosed"]),
        (str, []),
    ],
)
async def test_cleanup_calls_the_first_known_cleanup_method_of_the_instance(
    kind: type[Any], log: list[str]
) -> None:
    threads = ThreadContextManager()
    seen: list[str] = []

    async with threads.instance("a", "x", lambda: kind(seen)) as instance:
        assert isinstance(instance, str) == (kind in (Entered, str))
    await threads.aclose()

    assert seen == log


async def test_async_context_manager_creates_and_cleans_up_a_tool_instance() -> None:
    threads = ThreadContextManager()
    seen = []

    @asynccontextmanager
    async def create() -> AsyncIterator[str]:
        seen.append("made")
        yield "what is used"
        seen.append("cleaned up")

    for _ in range(2):
        async with threads.instance("a", "x", create) as instance:
            assert instance == "what is used"
    await threads.aclose()

    assert seen == ["made", "cleaned up"]


async def test_cleanup_of_a_tool_instance_runs_without_a_caller() -> None:
    threads = ThreadContextManager(max_threads=1, idle_seconds=0.01)
    seen = []

    class Looks:
        async def aclose(self) -> None:
            seen.append((current_identity(), current_tool_context()))

    async def look(thread_id: str) -> None:
        async with threads.instance(thread_id, "x", Looks):
            pass

    with identity(token_id="somebody"), tool_context_bound(None):
        for thread_id in "ab":
            await look(thread_id)  # the second evicts the first
        await until(lambda: len(seen) == 2)  # idle for too long
        await look("c")
        await threads.end_thread("c")
        await look("d")
        await threads.aclose()

    assert seen == [(None, None)] * 4
