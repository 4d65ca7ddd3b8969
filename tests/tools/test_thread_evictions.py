"""Conversations that end because they are idle for too long or because there are too many."""

import weakref

import pytest

from tests.tools.garbage import new_garbage
from tests.tools.short_times import until
from tests.tools.stateful_instances import Moment, Workshop, in_use, other_tasks, use
from tracer.tools.functions import ThreadContextManager


async def test_idle_conversation_ends_after_its_timeout_without_another_call() -> None:
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
    await until(lambda: not other_tasks())
    assert threads.thread_ids == ()
    await threads.aclose()


async def test_idle_conversations_end_by_the_real_clock() -> None:
    threads, workshop = ThreadContextManager(idle_seconds=0.01), Workshop()
    for number in range(20):
        await use(threads, str(number), workshop.create)
    await until(lambda: workshop.open == 0)

    await until(lambda: not other_tasks())
    await threads.aclose()


async def test_least_recently_used_conversation_ends_first() -> None:
    threads, workshop = ThreadContextManager(max_threads=2), Workshop()
    for thread_id in "abac":
        await use(threads, thread_id, workshop.create)
    await until(lambda: workshop.closed == [1])
    assert await use(threads, "a", workshop.create) == 0

    assert workshop.closed == [1]
    await threads.aclose()


async def test_conversation_in_use_is_never_evicted() -> None:
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


@pytest.mark.parametrize("is_closed", [True, False])
async def test_no_timer_remains_after_the_last_conversation_ends(is_closed: bool) -> None:
    with new_garbage() as collect:
        moment, workshop = Moment(), Workshop()
        threads = ThreadContextManager(idle_seconds=60, clock=moment)
        await use(threads, "a", workshop.create)
        if is_closed:
            await threads.aclose()
        else:
            moment.now = 60
            threads.end_idle()
        await until(lambda: workshop.closed == [0] and not other_tasks())
        is_gone = weakref.ref(threads)
        del threads
        collect()

    assert is_gone() is None, "a timer in the event loop still refers to the manager"
