"""What stateful tools keep for each conversation, from the first call that needs it to its end.

A thread is a conversation here (`ToolContext.thread_id`), not one of the operating system's. Each
has one instance of each tool that it has used.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from tracer.errors import ToolError
from tracer.logs import get_logger
from tracer.tasks import wait_for_end
from tracer.threads import call_in_thread, called, is_async

Create = Callable[[], Any]
"""Makes an instance, synchronous or not."""


@dataclass(frozen=True)
class StatefulInstance:
    """What a stateful tool keeps for one conversation."""

    value: Any
    close: Callable[[], Any] | None
    """Cleans up, synchronous or not."""


async def open_instance(create: Create) -> StatefulInstance:
    """Make an instance, and find the way to clean up after it.

    That is the first of these that it has: `aclose()`, `close()`, `__aexit__()`. One that has only
    the last is entered now, and what `__aenter__` returns is the instance.

    Raises:
        Exception: What `create` or `__aenter__` raised.
    """
    value = await called(create)
    for name in ("aclose", "close"):
        close = getattr(value, name, None)
        if callable(close):
            return StatefulInstance(value, close)
    if hasattr(type(value), "__aexit__"):
        entered = await value.__aenter__()
        return StatefulInstance(entered, partial(value.__aexit__, None, None, None))
    return StatefulInstance(value, None)


async def failure_to_close(instance: StatefulInstance) -> BaseException | None:
    """Clean up after an instance, and return what was raised.

    As a value: a task that ends with `SystemExit` ends the event loop too.
    """
    try:
        if instance.close is not None:
            await _closed(instance.close)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return error
    return None


async def _closed(close: Callable[[], Any]) -> None:
    if is_async(close):
        await close()
        return
    # In a thread of its own: it has little time, and none to wait until tools give up theirs.
    result = await call_in_thread(close, anyio.CapacityLimiter(1))
    if inspect.isawaitable(result):
        await result


log = get_logger(__name__)

MAX_CLEANUPS = 64
"""How many cleanups go on at once. The time of one that waits for its turn has not begun."""

_held: ContextVar[frozenset[object]] = ContextVar("tracer_uses_held", default=frozenset())
"""The uses of instances that this code is part of."""


class ThreadContext:
    """One conversation's instances: each made when it is first needed, and used by one at a time.

    What cleans up after one, `open_instance` says. It may
    happen in another task than making did, and belongs to nobody: no identity and no call are
    current in it.
    """

    def __init__(
        self,
        close_seconds: float,
        cleanups: asyncio.Semaphore,
        left_behind: set[asyncio.Task[Any]],
    ) -> None:
        """Begin without instances.

        Args:
            close_seconds: How long `aclose` waits for what goes on, and then for each cleanup.
            cleanups: Limits how many go on at once.
            left_behind: Holds cleanups that go on regardless, perhaps for longer than this.
        """
        self.uses = 0
        """How many use an instance now, or wait for their turn."""
        self.used_at = 0.0
        """When a use began or ended last; for whoever owns this."""
        self._close_seconds = close_seconds
        self._cleanups = cleanups
        self._left_behind = left_behind
        self._opened: dict[str, StatefulInstance] = {}  # the oldest first
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._current: dict[str, object] = {}
        self._unused = asyncio.Event()
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it now."""
        return not self.uses

    @property
    def is_empty(self) -> bool:
        """Whether it keeps nothing."""
        return not self._opened

    @asynccontextmanager
    async def instance(self, tool_name: str, create: Create) -> AsyncIterator[Any]:
        """Use a tool's instance, alone: others who want it wait.

        What `create` raises is raised here and not remembered: each of those who wait tries in
        turn.

        Args:
            tool_name: Whose instance.
            create: Makes it, unless it is there.

        Raises:
            ToolError: The conversation has ended, or this code is part of a use of the same
                instance and would wait for itself.
        """
        self.refuse_within_a_use(tool_name)
        use = object()
        self.uses += 1
        self._unused.clear()
        try:
            async with self._turns[tool_name]:
                self._current[tool_name] = use
                around = _held.get()
                _held.set(around | {use})
                try:
                    opened = self._opened.get(tool_name) or await self._open(tool_name, create)
                    self._refuse_if_closed(tool_name)
                    yield opened.value
                finally:
                    _held.set(around)
                    del self._current[tool_name]
        finally:
            self.uses -= 1
            if self.is_idle:
                self._unused.set()

    def has_tool(self, tool_name: str) -> bool:
        """Return whether a tool has an instance, or one is being made."""
        return tool_name in self._opened or tool_name in self._current

    def refuse_within_a_use(self, tool_name: str) -> None:
        """Return if this code is not part of a use of a tool's instance.

        Raises:
            ToolError: It is, and would wait for itself.
        """
        if self._current.get(tool_name) in _held.get():
            raise ToolError(
                f"The tool {tool_name!r} was called or ended from within a call of itself, in the "
                "same conversation, and would wait for itself. Let that call end first."
            )

    async def end_tool(self, tool_name: str) -> None:
        """Clean up after a tool's instance. The next use makes another one.

        Waits for earlier uses to end, for `close_seconds` at most. A use that takes longer loses
        its instance.
        """
        turn = self._turns[tool_name]
        waiting = asyncio.create_task(turn.acquire())
        await wait_for_end(waiting, self._close_deadline())
        has_turn = waiting.done() and not waiting.cancelled()
        try:
            opened = self._opened.pop(tool_name, None)
            if opened is not None:
                if tool_name in self._current:
                    log.warning("stateful_tool_closed_in_use", tool=tool_name)
                await self._close(tool_name, opened)
        finally:
            if has_turn:
                turn.release()

    async def aclose(self) -> None:
        """Wait for uses to end, then clean up after each instance, the youngest first.

        Takes `close_seconds` for the uses and as many for each instance, at most. A cleanup that
        fails or hangs is logged and stops no other. A use that takes longer loses its instance;
        those who still wait for a turn then are refused.
        """
        if not self.is_idle:
            await wait_for_end(asyncio.create_task(self._unused.wait()), self._close_deadline())
        self._closed = True
        while self._opened:
            tool_name, opened = self._opened.popitem()
            if tool_name in self._current:
                log.warning("stateful_tool_closed_in_use", tool=tool_name)
            await self._close(tool_name, opened)

    async def _open(self, tool_name: str, create: Create) -> StatefulInstance:
        self._refuse_if_closed(tool_name)
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        opened = await open_instance(create)
        if self._closed:
            # Whoever cleaned up did not see it. The task is not ours to cancel.
            closing = asyncio.create_task(self._close(tool_name, opened), context=Context())
            self._leave_behind(closing)
            await asyncio.wait({closing})
        else:
            self._opened[tool_name] = opened
        if task and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError  # which a thread has swallowed
        return opened

    async def _close(self, tool_name: str, opened: StatefulInstance) -> None:
        async with self._cleanups:
            work = asyncio.create_task(failure_to_close(opened))
            await wait_for_end(work, self._close_deadline())
        if not work.done():
            self._leave_behind(work)
        if not work.done() or work.cancelled():
            log.warning("stateful_tool_close_cut_short", tool=tool_name)
        elif (error := work.result()) is not None:
            log.warning("stateful_tool_close_failed", tool=tool_name, error=type(error).__name__)

    def _refuse_if_closed(self, tool_name: str) -> None:
        if self._closed:
            raise ToolError(
                f"The conversation ended before the tool {tool_name!r} could be used in it."
            )

    def _close_deadline(self) -> float:
        return time.monotonic() + self._close_seconds

    def _leave_behind(self, task: asyncio.Task[Any]) -> None:
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)


class ThreadContextManager:
    """The conversations that keep something, in one event loop: their owner closes it at the end.

    A conversation ends when its end is told, when it was unused for too long, and, while there are
    too many, when it is the one that was used least recently; in the two latter cases never while
    it is in use. It may go on afterwards: with new instances, whether or not the old are closed.
    """

    def __init__(
        self,
        *,
        max_threads: int = 1000,
        idle_seconds: float = 900,
        close_seconds: float = 5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without conversations.

        Args:
            max_threads: How many are kept; there are more only where more are in use at once.
            idle_seconds: After how long without use one ends.
            close_seconds: How long one that ends is waited for while it is in use, and then for
                the cleanup of each of its instances.
            clock: Tells seconds.
        """
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._close_seconds = close_seconds
        self._clock = clock
        self._threads: OrderedDict[str, ThreadContext] = OrderedDict()  # latest use last
        self._closings: dict[asyncio.Task[None], str] = {}
        self._cleanups = asyncio.Semaphore(MAX_CLEANUPS)
        self._left_behind: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def thread_ids(self) -> tuple[str, ...]:
        """The ids of the open conversations, the least recently used first."""
        return tuple(self._threads)

    @asynccontextmanager
    async def instance(self, thread_id: str, tool_name: str, create: Create) -> AsyncIterator[Any]:
        """Use a tool's instance in a conversation, alone; see `ThreadContext.instance`.

        Args:
            thread_id: The conversation's id.
            tool_name: Whose instance.
            create: Makes it, unless it is there.

        Raises:
            ToolError: All is being closed, or the conversation is; or this code is part of a use of
                the same instance.
        """
        if self._closed:
            raise ToolError(f"The tool {tool_name!r} can't be used: the application is ending.")
        thread = self._threads.get(thread_id)
        if thread is None:
            self._evict(self._max_threads - 1)
            thread = ThreadContext(self._close_seconds, self._cleanups, self._left_behind)
        self._note_use(thread_id, thread)
        try:
            async with thread.instance(tool_name, create) as instance:
                yield instance
        finally:
            if self._threads.get(thread_id) is thread:
                self._note_use(thread_id, thread)
                if thread.is_idle and thread.is_empty:
                    del self._threads[thread_id]
                self._evict(self._max_threads)
                self._set_timer()

    async def end_thread(self, thread_id: str) -> None:
        """End a conversation: when this returns, nothing is left open of what it had.

        It takes as long as `ThreadContext.aclose` does. When it is cancelled, the conversation ends
        all the same.
        """
        self._end(thread_id)
        closing = {task for task, each in self._closings.items() if each == thread_id}
        if closing:
            await asyncio.wait(closing)

    async def end_tool(self, tool_name: str, thread_ids: Iterable[str]) -> None:
        """Clean up after a tool's instances in conversations. Their next uses make new ones.

        It takes as long as `ThreadContext.end_tool` does. When it is cancelled, the instances are
        closed all the same.

        Raises:
            ToolError: This code is part of a use of such an instance; none is closed then.
        """
        threads = {each: self._threads[each] for each in thread_ids if each in self._threads}
        threads = {each: thread for each, thread in threads.items() if thread.has_tool(tool_name)}
        for thread in threads.values():
            thread.refuse_within_a_use(tool_name)
        closing = set()
        for thread_id, thread in threads.items():
            ending = self._end_tool(thread_id, thread, tool_name)
            task = asyncio.create_task(ending, context=Context())
            self._closings[task] = thread_id
            task.add_done_callback(self._closings.pop)
            closing.add(task)
        if closing:
            await asyncio.wait(closing)

    def end_idle(self) -> None:
        """End the conversations that have been idle for `idle_seconds`.

        A timer calls this when the time of the first idle conversation is up. Call it to free
        instances earlier, for example after the clock was changed. It does not wait for cleanups.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        for thread_id, thread in list(self._threads.items()):
            if thread.is_idle and thread.used_at + self._idle_seconds <= now:
                self._end(thread_id)
        self._set_timer()

    async def aclose(self) -> None:
        """End all conversations and refuse new ones.

        It goes on to its end when it is cancelled: all is bounded in time (`ThreadContext.aclose`).

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        self._closed = True
        for thread_id in list(self._threads):
            self._end(thread_id)
        if self._timer is not None:
            self._timer.cancel()
        cancellation: asyncio.CancelledError | None = None
        while self._closings:
            try:
                await asyncio.wait(set(self._closings))
            except asyncio.CancelledError as error:
                cancellation = error
        if cancellation is not None:
            raise cancellation

    def _note_use(self, thread_id: str, thread: ThreadContext) -> None:
        thread.used_at = self._clock()
        self._threads[thread_id] = thread
        self._threads.move_to_end(thread_id)

    def _end(self, thread_id: str) -> None:
        """Begin to close a conversation; a new use begins another."""
        thread = self._threads.pop(thread_id, None)
        if thread is not None:
            # In a task, for whoever ends it may be cancelled; and without the context of a call.
            closing = asyncio.create_task(thread.aclose(), context=Context())
            self._closings[closing] = thread_id
            closing.add_done_callback(self._closings.pop)

    async def _end_tool(self, thread_id: str, thread: ThreadContext, tool_name: str) -> None:
        await thread.end_tool(tool_name)
        if self._threads.get(thread_id) is thread and thread.is_idle and thread.is_empty:
            del self._threads[thread_id]

    def _evict(self, most: int) -> None:
        surplus = len(self._threads) - most
        if surplus > 0:
            idle = (each for each, thread in self._threads.items() if thread.is_idle)
            for thread_id in [each for each, _ in zip(idle, range(surplus), strict=False)]:
                self._end(thread_id)

    def _set_timer(self) -> None:
        """Schedule `end_idle` for when the time of the first idle conversation is up.

        It is called when a use ends: only then may a conversation become idle. One that was before
        has its timer already, and its time is over earlier.
        """
        if self._timer is None and not self._closed:
            oldest = next((each for each in self._threads.values() if each.is_idle), None)
            if oldest is not None:
                left = oldest.used_at + self._idle_seconds - self._clock()
                loop = asyncio.get_running_loop()
                # Not in the context of the call that happens to set it.
                self._timer = loop.call_later(max(0.0, left), self.end_idle, context=Context())
