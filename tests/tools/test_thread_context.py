"""Tool instances of conversations: assignment, creation and cleanup."""

import asyncio
import threading
import weakref
from dataclasses import replace

import pytest

from tests.tools.contexts import some_context
from tests.tools.garbage import new_garbage
from tests.tools.short_times import PATIENCE
from tests.tools.stateful_instances import Bench, Using, Workshop, in_use, other_tasks, use
from tracer.context import tool_context_bound
from tracer.errors import ToolError
from tracer.tools.functions import ThreadContextManager


async def test_each_conversation_has_its_own_instance() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    numbers = [await use(threads, thread_id, workshop.create) for thread_id in "aabab"]
    await threads.aclose()

    assert numbers == [0, 0, 1, 0, 1]
    assert sorted(workshop.closed) == [0, 1]


async def test_each_tool_has_its_own_instance_in_a_conversation() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    async with (
        threads.instance("a", "one", workshop.create) as one,
        threads.instance("a", "two", workshop.create) as two,
    ):
        assert one is not two
    await threads.aclose()


async def test_concurrent_calls_share_one_tool_instance_one_at_a_time() -> None:
    threads, workshop = ThreadContextManager(), Workshop(turns=3)
    numbers = await asyncio.gather(*(use(threads, "a", workshop.create) for _ in range(50)))
    await threads.aclose()

    assert numbers == [0] * 50
    assert workshop.begun == 1


async def test_ended_conversations_leave_no_task_and_no_instance() -> None:
    threads, workshop = ThreadContextManager(), Workshop(turns=1)

    async def conversation(thread_id: str) -> None:
        await use(threads, thread_id, workshop.create)
        await use(threads, thread_id, workshop.create)
        await threads.end_thread(thread_id)

    with new_garbage() as collect:
        await asyncio.gather(*(conversation(str(number)) for number in range(1000)))
        collect()

    assert (workshop.begun, len(workshop.closed), workshop.alive) == (1000, 1000, 0)
    assert other_tasks() == set()


async def test_closing_the_instance_manager_ends_all_conversations() -> None:
    threads, workshop = ThreadContextManager(max_threads=100), Workshop()
    with new_garbage() as collect:
        for number in range(1000):
            await use(threads, str(number), workshop.create)
        assert workshop.open <= 110
        await threads.aclose()
        collect()

    assert (len(workshop.closed), workshop.alive) == (1000, 0)
    assert other_tasks() == set()


async def test_next_call_creates_the_instance_again_after_a_failure() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    failures = 0

    async def create() -> Bench:
        nonlocal failures
        await asyncio.sleep(0)
        if failures < 2:
            failures += 1
            raise OSError("not yet")
        return await workshop.create()

    outcomes = await asyncio.gather(
        *(use(threads, "a", create) for _ in range(4)), return_exceptions=True
    )
    await threads.aclose()

    assert [type(each) for each in outcomes] == [OSError, OSError, int, int]
    assert workshop.made == workshop.closed == [0]


async def test_nested_call_of_the_same_tool_instance_is_rejected() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    async with threads.instance("a", "bench", workshop.create):
        with pytest.raises(ToolError, match="called or ended the same tool"):
            await asyncio.wait_for(use(threads, "a", workshop.create), PATIENCE)  # in another task
        assert await use(threads, "b", workshop.create) == 1

    assert await use(threads, "a", workshop.create) == 0
    await threads.aclose()


async def test_task_started_by_a_call_may_use_the_instance_afterwards() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    is_over = asyncio.Event()

    async def later() -> int:
        await is_over.wait()
        return await use(threads, "a", workshop.create)

    async with threads.instance("a", "bench", workshop.create):
        left_behind = asyncio.create_task(later())
        await asyncio.sleep(0)
    is_over.set()

    assert await left_behind == 0
    await threads.aclose()


async def test_instance_is_kept_if_the_call_that_created_it_is_cancelled() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    begun, let_go = threading.Event(), threading.Event()

    def create() -> Bench:
        begun.set()
        assert let_go.wait(PATIENCE)
        return asyncio.run(workshop.create())

    using = asyncio.create_task(use(threads, "a", create))
    await asyncio.to_thread(begun.wait, PATIENCE)
    using.cancel()
    let_go.set()
    await asyncio.wait({using})

    assert using.cancelled()
    assert await use(threads, "a", create) == 0
    await threads.aclose()
    assert workshop.closed == [0]


async def test_kept_tool_instance_does_not_reference_its_run() -> None:
    class Run:
        pass

    threads, workshop, run = ThreadContextManager(), Workshop(), Run()
    is_gone = weakref.ref(run)
    with new_garbage() as collect:
        with tool_context_bound(replace(some_context(), run=run)):
            await asyncio.create_task(use(threads, "a", workshop.create))
        await asyncio.sleep(0)  # until now the event loop refers to the task
        del run
        collect()

    assert is_gone() is None
    assert workshop.alive == 1
    await threads.aclose()


async def test_conversation_used_after_its_end_gets_a_new_instance() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    await use(threads, "a", workshop.create)
    await threads.end_thread("a")
    await threads.end_thread("a")
    await threads.end_thread("never heard of")

    assert workshop.closed == [0]
    assert await use(threads, "a", workshop.create) == 1
    await threads.aclose()


async def test_tool_instances_are_closed_in_reverse_order_of_creation() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    for tool_name in ("x", "y", "z", "x"):
        async with threads.instance("a", tool_name, workshop.create):
            pass
    await threads.end_thread("a")

    assert workshop.closed == [2, 1, 0]
    await threads.aclose()


async def test_ending_a_conversation_waits_for_current_and_queued_calls() -> None:
    threads, workshop = ThreadContextManager(close_seconds=PATIENCE), Workshop()
    first = await in_use(threads, "a", workshop.create)
    second = Using(threads, "a", "bench", workshop.create)
    await asyncio.sleep(0)
    endings = [asyncio.create_task(threads.end_thread("a")) for _ in range(2)]
    await asyncio.sleep(0)
    after = await in_use(threads, "a", workshop.create)
    assert workshop.closed == []

    assert (await first.end()).number == (await second.end()).number == 0
    await asyncio.gather(*endings)
    assert workshop.closed == [0]
    assert (await after.end()).number == 1
    await threads.aclose()


async def test_ending_a_conversation_times_out_and_rejects_queued_calls() -> None:
    threads, workshop = ThreadContextManager(close_seconds=0.01), Workshop()
    first = await in_use(threads, "a", workshop.create)
    second = Using(threads, "a", "bench", workshop.create)
    await asyncio.sleep(0)
    await threads.end_thread("a")
    assert workshop.closed == [0]
    await first.end()
    with pytest.raises(ToolError, match="conversation ended"):
        await second.end()

    assert workshop.made == [0]
    await threads.aclose()
    assert other_tasks() == set()


async def test_instance_whose_creation_outlasts_its_conversation_is_closed() -> None:
    threads, workshop = ThreadContextManager(close_seconds=0.01), Workshop()
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def create() -> Bench:
        begun.set()
        await let_go.wait()
        return await workshop.create()

    using = asyncio.create_task(use(threads, "a", create))
    await begun.wait()
    await threads.aclose()
    let_go.set()
    with pytest.raises(ToolError, match="conversation ended"):
        await using

    assert workshop.made == workshop.closed == [0]
    assert other_tasks() == set()


async def test_closed_instance_manager_rejects_every_use() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    await threads.aclose()
    await threads.aclose()
    with pytest.raises(ToolError, match="the application is shutting down"):
        await use(threads, "a", workshop.create)

    assert workshop.begun == 0


async def test_cancelled_close_of_the_instance_manager_finishes_before_it_raises() -> None:
    threads, workshop = ThreadContextManager(close_seconds=PATIENCE), Workshop()
    using = await in_use(threads, "a", workshop.create)
    ending = asyncio.create_task(threads.aclose())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(0)
    assert not ending.done()
    await using.end()
    await asyncio.wait({ending})

    assert ending.cancelled()
    assert workshop.closed == [0]
