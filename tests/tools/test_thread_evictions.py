"""Conversations that end by themselves: idle for too long, or one too many."""

import gc
import weakref

from tests.tools.stateful_instances import Moment, Workshop, in_use, other_tasks, until, use
from tracer.tools.thread_context import ThreadContextManager


async def test_a_conversation_ends_when_it_was_idle_for_too_long_though_nobody_calls() -> None:
    moment, workshop = Moment(), Workshop()
    threads = ThreadContextManager(idle_seconds=0.01, clock=moment)
    await use(threads, "a", workshop.create)
    busy = await in_use(threads, "b", workshop.create)
    readings = moment.readings
    await until(lambda: moment.readings > readings + 6)  # the timer came several times
    assert workshop.closed == []

    moment.now = 0.005
    await use(threads, "c", workshop.create)
    moment.now = 0.01
    await until(lambda: workshop.closed == [0])
    moment.now = 0.016
    await until(lambda: workshop.closed == [0, 2])
    await busy.end()
    readings = moment.readings
    await until(lambda: moment.readings > readings + 6)
    assert workshop.closed == [0, 2]

    moment.now = 1
    await until(lambda: workshop.closed == [0, 2, 1])
    assert threads._timer is None
    await until(lambda: not other_tasks())
    await threads.aclose()


async def test_idle_conversations_end_by_the_real_clock() -> None:
    threads, workshop = ThreadContextManager(idle_seconds=0.01), Workshop()
    for number in range(20):
        await use(threads, str(number), workshop.create)
    await until(lambda: workshop.open == 0)

    await until(lambda: not other_tasks())
    await threads.aclose()


async def test_of_too_many_the_least_recently_used_ends() -> None:
    threads, workshop = ThreadContextManager(max_threads=2), Workshop()
    for thread_id in "abac":
        await use(threads, thread_id, workshop.create)
    await until(lambda: workshop.closed == [1])
    assert await use(threads, "a", workshop.create) == 0

    assert workshop.closed == [1]
    await threads.aclose()


async def test_one_in_use_is_never_ended_for_being_one_too_many() -> None:
    threads, workshop = ThreadContextManager(max_threads=2, close_seconds=0), Workshop()
    busy = [await in_use(threads, thread_id, workshop.create) for thread_id in "abcd"]
    for thread_id in "efg":
        await use(threads, thread_id, workshop.create)
    await until(lambda: workshop.closed == [4, 5, 6])
    for each in busy:
        assert (await each.end()).closed == 0
    await until(lambda: workshop.open == 2)

    assert workshop.closed == [4, 5, 6, 0, 1]
    await threads.aclose()


async def test_once_closed_it_waits_for_nothing_any_more() -> None:
    threads, workshop = ThreadContextManager(), Workshop()
    await use(threads, "a", workshop.create)
    await threads.aclose()
    is_gone = weakref.ref(threads)
    del threads
    gc.collect()

    assert is_gone() is None
