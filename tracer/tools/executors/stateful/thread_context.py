"""The instances of stateful tools, kept for each conversation until it ends.

Here a thread is a conversation (`ToolContext.thread_id`), not a thread of the operating system. It
has one instance of each stateful tool that it has used.
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
"""Creates an instance, synchronous or not."""


@dataclass(frozen=True)
class StatefulInstance:
    """An instance of a stateful tool, for one conversation."""

    value: Any
    close: Callable[[], Any] | None
    """Closes the instance, synchronous or not."""


async def open_instance(create: Create) -> StatefulInstance:
    """Create an instance, and determine how to close it.

    The first of these methods that the object has closes it: `aclose()`, `close()`, `__aexit__()`.
    If the object has only `__aexit__()`, it is entered now, and the value of `__aenter__` is the
    instance.

    Raises:
        Exception: `create` or `__aenter__` raised it.
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
    """Close an instance. Return the error that closing raised, or None.

    The error is not raised, because a task that raises `SystemExit` would end the event loop.
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
    # Outside of the tools' thread limit: its time is short, and must not pass in a queue.
    result = await call_in_thread(close, anyio.CapacityLimiter(1))
    if inspect.isawaitable(result):
        await result


log = get_logger(__name__)

MAX_CLEANUPS = 64
"""How many instances are closed at once. While an instance waits, its time limit does not run."""

_held: ContextVar[frozenset[object]] = ContextVar("tracer_uses_held", default=frozenset())
"""The uses of instances (`ThreadContext.instance`) within which the current code runs."""


class ThreadContext:
    """The instances of one conversation, each used by one call at a time.

    An instance is created when it is first needed, and closed as `open_instance` determines. It may
    be closed by another task than the one that created it. The closing task has no current identity
    and no current tool call.
    """

    def __init__(
        self,
        close_seconds: float,
        cleanups: asyncio.Semaphore,
        background_tasks: set[asyncio.Task[Any]],
    ) -> None:
        """Create a conversation without tool instances.

        Args:
            close_seconds: How long `aclose` waits for active uses, and then for each instance.
            cleanups: Limits how many instances are closed at once.
            background_tasks: Holds tasks that do not end in time, and may outlive this object.
        """
        self.uses = 0
        """The number of calls that use an instance or wait for one."""
        self.used_at = 0.0
        """When a call last started or stopped using an instance; set by `ThreadContextManager`."""
        self._close_seconds = close_seconds
        self._cleanups = cleanups
        self._background_tasks = background_tasks
        self._opened: dict[str, StatefulInstance] = {}  # the oldest first
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._current: dict[str, object] = {}
        self._unused = asyncio.Event()
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether no call uses an instance of the conversation."""
        return not self.uses

    @property
    def is_empty(self) -> bool:
        """Whether the conversation has no instances."""
        return not self._opened

    @asynccontextmanager
    async def instance(self, tool_name: str, create: Create) -> AsyncIterator[Any]:
        """Use a tool's instance exclusively; other calls that need it wait.

        If `create` raises an error, the error is raised here. It is not cached: each waiting call
        calls `create` again.

        Args:
            tool_name: The tool.
            create: Creates the instance, if there is none.

        Raises:
            ToolError: The conversation has ended; or the calling code already uses the instance,
                and would wait for itself.
        """
        self.refuse_within_a_use(tool_name)
        use = object()
        self.uses += 1
        self._unused.clear()
        try:
            async with self._turns[tool_name]:
                self._current[tool_name] = use
                outer_uses = _held.get()
                _held.set(outer_uses | {use})
                try:
                    opened = self._opened.get(tool_name) or await self._open(tool_name, create)
                    self._refuse_if_closed(tool_name)
                    yield opened.value
                finally:
                    _held.set(outer_uses)
                    del self._current[tool_name]
        finally:
            self.uses -= 1
            if self.is_idle:
                self._unused.set()

    def has_tool(self, tool_name: str) -> bool:
        """Return whether a tool has an instance, or one is being created."""
        return tool_name in self._opened or tool_name in self._current

    def refuse_within_a_use(self, tool_name: str) -> None:
        """Check that the calling code does not use a tool's instance already.

        Raises:
            ToolError: The code uses the instance, and would wait for itself.
        """
        if self._current.get(tool_name) in _held.get():
            raise ToolError(
                f"A call of the tool {tool_name!r} called or ended the same tool in the same "
                "conversation, and would wait for itself. Use the tool again after the call."
            )

    async def end_tool(self, tool_name: str) -> None:
        """Close a tool's instance. The next use creates another one.

        Waits at most `close_seconds` for earlier uses to end. Then the instance is closed, even if
        a call still uses it.
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
        """Wait for uses to end, then close each instance, the youngest first.

        Waits at most `close_seconds` for the uses, and then for each instance to close. Instances
        are closed even if calls still use them. Calls that still wait for an instance are rejected.
        If an instance fails to close, or hangs, this is logged and the others are closed.
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
            # `aclose` did not see this instance, so it is closed here. Not in this task, which may
            # be cancelled.
            closing = asyncio.create_task(self._close(tool_name, opened), context=Context())
            self._run_in_background(closing)
            await asyncio.wait({closing})
        else:
            self._opened[tool_name] = opened
        if task and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError  # a thread suppressed the cancellation
        return opened

    async def _close(self, tool_name: str, opened: StatefulInstance) -> None:
        async with self._cleanups:
            work = asyncio.create_task(failure_to_close(opened))
            await wait_for_end(work, self._close_deadline())
        if not work.done():
            self._run_in_background(work)
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

    def _run_in_background(self, task: asyncio.Task[Any]) -> None:
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)


class ThreadContextManager:
    """The conversations of one event loop that have instances. The owner closes it at the end.

    A conversation ends on request, when it has been idle for too long, or when there are too many
    conversations and it is the least recently used one. A conversation in use ends only on request.
    A conversation may continue after its end, with new instances.
    """

    def __init__(
        self,
        *,
        max_threads: int = 1000,
        idle_seconds: float = 900,
        close_seconds: float = 5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a manager without conversations.

        Args:
            max_threads: How many conversations are kept. Conversations in use may exceed it.
            idle_seconds: After how long without use a conversation ends.
            close_seconds: How long closing waits for active uses, and then for each instance.
            clock: Returns seconds.
        """
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._close_seconds = close_seconds
        self._clock = clock
        self._threads: OrderedDict[str, ThreadContext] = OrderedDict()  # latest use last
        self._closings: dict[asyncio.Task[None], str] = {}
        self._cleanups = asyncio.Semaphore(MAX_CLEANUPS)
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def thread_ids(self) -> tuple[str, ...]:
        """The ids of the open conversations, the least recently used first."""
        return tuple(self._threads)

    @asynccontextmanager
    async def instance(self, thread_id: str, tool_name: str, create: Create) -> AsyncIterator[Any]:
        """Use a tool's instance in a conversation, exclusively; see `ThreadContext.instance`.

        Args:
            thread_id: The conversation's id.
            tool_name: The tool.
            create: Creates the instance, if there is none.

        Raises:
            ToolError: The manager or the conversation is closed, or this code already uses the
                instance.
        """
        if self._closed:
            raise ToolError(
                f"The tool {tool_name!r} cannot be used, because the application is shutting down."
            )
        thread = self._threads.get(thread_id)
        if thread is None:
            self._evict(self._max_threads - 1)
            thread = ThreadContext(self._close_seconds, self._cleanups, self._background_tasks)
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
        """End a conversation. When this returns, all its instances are closed.

        Takes as long as `ThreadContext.aclose`. If it is cancelled, the conversation ends
        nevertheless.
        """
        self._end(thread_id)
        closing = {task for task, each in self._closings.items() if each == thread_id}
        if closing:
            await asyncio.wait(closing)

    async def end_tool(self, tool_name: str, thread_ids: Iterable[str]) -> None:
        """Close a tool's instances in some conversations. Their next uses create new ones.

        Takes as long as `ThreadContext.end_tool`. If it is cancelled, the instances are closed
        nevertheless.

        Raises:
            ToolError: The calling code uses such an instance itself. No instance is closed then.
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

        A timer calls this when the first idle conversation is due. Call it to free instances
        earlier, for example after the clock was changed. It does not wait until they are closed.
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
        """End all conversations and reject new ones.

        A cancellation is delayed until all are closed, which takes a bounded time.

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
        """Start to close a conversation. If it is used later, it gets new instances."""
        thread = self._threads.pop(thread_id, None)
        if thread is not None:
            # In a task, because the caller may be cancelled; without the context of a call.
            closing = asyncio.create_task(thread.aclose(), context=Context())
            self._closings[closing] = thread_id
            closing.add_done_callback(self._closings.pop)

    async def _end_tool(self, thread_id: str, thread: ThreadContext, tool_name: str) -> None:
        await thread.end_tool(tool_name)
        if self._threads.get(thread_id) is thread and thread.is_idle and thread.is_empty:
            del self._threads[thread_id]

    def _evict(self, limit: int) -> None:
        surplus = len(self._threads) - limit
        if surplus > 0:
            idle = (each for each, thread in self._threads.items() if thread.is_idle)
            for thread_id in [each for each, _ in zip(idle, range(surplus), strict=False)]:
                self._end(thread_id)

    def _set_timer(self) -> None:
        """Schedule `end_idle` for the time when the first idle conversation is due.

        Called when a use ends, because only then can a conversation become idle. If another
        conversation was idle before, a timer exists already and is due earlier.
        """
        if self._timer is None and not self._closed:
            oldest = next((each for each in self._threads.values() if each.is_idle), None)
            if oldest is not None:
                left = oldest.used_at + self._idle_seconds - self._clock()
                loop = asyncio.get_running_loop()
                # Without the context of the call that happens to set the timer.
                self._timer = loop.call_later(max(0.0, left), self.end_idle, context=Context())
