"""Instances for tests of stateful tools, and a workshop that knows what became of each."""

import asyncio
import weakref
from typing import Any

from tracer.tools.functions import Create, ThreadContextManager


class Bench:
    """An instance: notes its uses, and that nobody uses it together with others or once closed."""

    def __init__(self, workshop: "Workshop", number: int) -> None:
        self.number = number
        self.users = 0
        self.closed = 0
        self._workshop = workshop

    def begin(self) -> None:
        assert not self.users, "used by two at once"
        assert not self.closed, "used after it was closed"
        self.users += 1

    def end(self) -> None:
        self.users -= 1

    async def aclose(self) -> None:
        self.closed += 1
        self._workshop.closed.append(self.number)


class Workshop:
    """Makes benches."""

    def __init__(self, turns: int = 0) -> None:
        """Begin.

        Args:
            turns: How many turns of the event loop it takes to make one.
        """
        self.begun = 0
        self.made: list[int] = []
        self.closed: list[int] = []
        self._turns = turns
        self._alive: weakref.WeakSet[Bench] = weakref.WeakSet()

    async def create(self) -> Bench:
        self.begun += 1
        for _ in range(self._turns):
            await asyncio.sleep(0)
        bench = Bench(self, len(self.made))
        self.made.append(bench.number)
        self._alive.add(bench)
        return bench

    @property
    def alive(self) -> int:
        return len(self._alive)

    @property
    def open(self) -> int:
        return len(self.made) - len(self.closed)


class Moment:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.now


async def use(threads: ThreadContextManager, thread_id: str, create: Create) -> int:
    """Use an instance for some turns of the event loop, and return its number."""
    async with threads.instance(thread_id, "bench", create) as bench:
        bench.begin()
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            bench.end()
        number: int = bench.number
        return number


class Using:
    """A use that goes on until it is let go."""

    def __init__(
        self, threads: ThreadContextManager, thread_id: str, tool_name: str, create: Create
    ) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.task = asyncio.create_task(self._use(threads, thread_id, tool_name, create))

    async def _use(
        self, threads: ThreadContextManager, thread_id: str, tool_name: str, create: Create
    ) -> Any:
        async with threads.instance(thread_id, tool_name, create) as bench:
            bench.begin()
            try:
                self.begun.set()
                await self.let_go.wait()
            finally:
                bench.end()
            return bench

    async def end(self) -> Any:
        self.let_go.set()
        return await self.task


async def in_use(threads: ThreadContextManager, thread_id: str, create: Create) -> Using:
    """Return a use that has begun."""
    using = Using(threads, thread_id, "bench", create)
    await using.begun.wait()
    return using


def other_tasks() -> set[asyncio.Task[Any]]:
    """Return the tasks that are neither the test's nor of fixtures that last for the session.

    Such fixtures are the runner, the browser and the pool of the browser tests. The pool's
    scheduler waits for an event in a task of its own; in tools, the task that waits counts itself.
    """
    others = asyncio.all_tasks() - {asyncio.current_task()}
    foreign = ("_call_in_runner_task", "/playwright/", "/psycopg_pool/", "Event.wait()")
    return {each for each in others if not any(name in repr(each) for name in foreign)}
