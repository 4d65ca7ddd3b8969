"""Conversations that are used, ended and cancelled at any turn and in any order."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.short_times import PATIENCE
from tests.tools.stateful_instances import Bench, Moment, Using, Workshop, other_tasks, use
from tracer.tools.functions import ThreadContextManager


@pytest.mark.parametrize("whom", ["first", "second", "ending", "all"])
async def test_cancellation_at_any_turn_of_the_event_loop_leaves_no_lock_or_instance(
    whom: str,
) -> None:
    turns, was_cancelled = 0, True
    while was_cancelled:
        threads, workshop = ThreadContextManager(close_seconds=PATIENCE), Workshop(turns=2)

        async def first() -> None:
            await use(threads, "a", workshop.create)  # noqa: B023
            await use(threads, "b", workshop.create)  # noqa: B023

        async def ending() -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            await threads.end_thread("a")  # noqa: B023

        work = {
            "first": asyncio.create_task(first()),
            "second": asyncio.create_task(use(threads, "a", workshop.create)),
            "ending": asyncio.create_task(ending()),
        }
        cancelled = list(work.values()) if whom == "all" else [work[whom]]
        for _ in range(turns):
            await asyncio.sleep(0)
        was_cancelled = sum(each.cancel() for each in cancelled) > 0
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait(work.values())
            for thread_id in "ab":
                await use(threads, thread_id, workshop.create)
            await threads.aclose()

        assert sorted(workshop.closed) == workshop.made
        assert not any(each.exception() for each in work.values() if not each.cancelled())
        assert other_tasks() == set()
        turns += 1

    assert turns > 8


async def test_close_cancelled_at_any_turn_of_the_event_loop_closes_every_instance() -> None:
    turns, was_cancelled = 0, True
    while was_cancelled:
        threads, workshop = ThreadContextManager(close_seconds=PATIENCE), Workshop(turns=1)
        using = [
            asyncio.create_task(use(threads, thread_id, workshop.create)) for thread_id in "aab"
        ]
        await asyncio.sleep(0)
        closing = asyncio.create_task(threads.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        was_cancelled = closing.cancel()
        await asyncio.wait({closing, *using})
        # Cancelled before it began, it did nothing.
        await threads.aclose()

        assert sorted(workshop.closed) == workshop.made
        assert other_tasks() == set()
        turns += 1

    assert turns > 4


STEP = st.one_of(
    st.tuples(st.just("use"), st.sampled_from("abc"), st.sampled_from("xy")),
    st.tuples(st.sampled_from(["end use", "cancel use"]), st.integers(0, 9)),
    st.tuples(st.just("end thread"), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["idle", "turn"])),
)


@given(steps=st.lists(STEP, max_size=40), max_threads=st.integers(0, 3))
async def test_any_order_of_calls_and_ends_closes_each_instance_once(
    steps: list[tuple[Any, ...]], max_threads: int
) -> None:
    moment, workshop = Moment(), Workshop(turns=1)
    threads = ThreadContextManager(
        max_threads=max_threads, idle_seconds=1, close_seconds=PATIENCE, clock=moment
    )
    using: list[Using] = []
    endings: list[asyncio.Task[None]] = []
    for step in steps:
        match step:
            case ("use", thread_id, tool_name):
                using.append(Using(threads, thread_id, tool_name, workshop.create))
            case ("end use", number) if using:
                using[number % len(using)].let_go.set()
            case ("cancel use", number) if using:
                using[number % len(using)].task.cancel()
            case ("end thread", thread_id):
                endings.append(asyncio.create_task(threads.end_thread(thread_id)))
            case ("idle",):
                moment.now += 1
                threads.end_idle()
            case _:
                await asyncio.sleep(0)
    for each in using:
        each.let_go.set()
    outcomes = await asyncio.gather(*(each.task for each in using), return_exceptions=True)
    await asyncio.gather(*endings)
    assert len(threads.thread_ids) <= max_threads
    moment.now += 1
    threads.end_idle()
    assert threads.thread_ids == (), "a conversation counts as in use after its last use"
    await threads.aclose()

    for outcome in outcomes:
        assert isinstance(outcome, (Bench, asyncio.CancelledError))
    assert sorted(workshop.closed) == workshop.made
    assert other_tasks() == set()
