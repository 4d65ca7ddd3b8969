"""Wait for asyncio tasks with deadlines, and run synchronous tools in threads."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import aclosing, closing
from contextvars import ContextVar
from enum import Enum
from functools import partial
from threading import Event, Lock
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import RunVar

# --- Wait for asyncio tasks that run code of the application, with deadlines and cancellation.

GRACE_SECONDS = 0.25
"""How many seconds cancelled code may take to clean up. After that, nothing waits for it."""


class Waited(Enum):
    """Why waiting for a task ended."""

    ENDED = "ended"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    """The waiting task was cancelled. The awaited task may have ended just before."""


async def wait_for_end(
    work: asyncio.Task[Any], deadline: float | None, grace: float | None = GRACE_SECONDS
) -> Waited:
    """Wait for a task. Cancel it if its deadline passes or the waiting task is cancelled.

    This function never raises `CancelledError`. If the waiting task is cancelled, the function
    returns `Waited.CANCELLED`, and the caller must handle the cancellation. If `work` ignores its
    own cancellation for `grace` seconds, the function returns although `work` is still running.

    Args:
        work: The task to wait for.
        deadline: The deadline, as a time of `time.monotonic()`; None for no deadline.
        grace: The seconds that a cancelled task may take to end; None for unlimited.
    """
    waited = Waited.ENDED
    try:
        await asyncio.wait({work}, timeout=seconds_left(deadline))
        if not work.done():
            waited = Waited.TIMED_OUT
    except asyncio.CancelledError:
        waited = Waited.CANCELLED
    if not work.done():
        work.cancel()
    until = None if grace is None else time.monotonic() + grace
    while not work.done() and seconds_left(until) != 0:
        try:
            await asyncio.wait({work}, timeout=seconds_left(until))
        except asyncio.CancelledError:
            waited = Waited.CANCELLED
    return waited


async def finish_despite_cancellation(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for work that must not be interrupted, even if the waiting task is cancelled.

    Returns:
        The `CancelledError` if the waiting task was cancelled; otherwise None. The caller must
        raise the error.

    Raises:
        Exception: The exception that `work` raised.
    """
    cancellation: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation


def seconds_left(deadline: float | None) -> float | None:
    """Return the seconds until a deadline; 0 if the deadline has passed, None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def has_passed(deadline: float | None) -> bool:
    """Return whether a deadline has passed."""
    return seconds_left(deadline) == 0


def capped_deadline(deadline: float | None, timeout: float | None) -> float | None:
    """Return the earlier of `deadline` and the time in `timeout` seconds. None means no limit."""
    if timeout is None:
        return deadline
    end = time.monotonic() + timeout
    return end if deadline is None else min(end, deadline)


# --- Run synchronous tools in a limited number of threads, with the caller's context variables.

MAX_THREADS = 64
"""How many synchronous tools run at once in one event loop; other calls wait."""

Answer = TypeVar("Answer")

_has_thread: ContextVar[bool] = ContextVar("tracer_has_thread", default=False)
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("tracer_tool_threads")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether `function` is asynchronous: calls of it are awaited, and need no thread."""
    if isinstance(function, partial):
        return is_async(function.func)
    target = function if inspect.isroutine(function) else type(function).__call__
    # Both: a wrapper may be asynchronous while the wrapped function is not, and vice versa.
    return any(map(inspect.iscoroutinefunction, (target, inspect.unwrap(target))))


def is_generator(function: object) -> bool:
    """Return whether `function` is a generator function. Calling it would not run its body."""
    if isinstance(function, partial):
        return is_generator(function.func)
    target = function if inspect.isroutine(function) else type(function).__call__
    return inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)


async def called(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a function of the application and return its result.

    A synchronous function runs in a thread, an asynchronous one in the event loop.

    Raises:
        Exception: The exception that the function raised.
    """
    if is_async(function):
        return await function(*arguments, **named)
    result = await run_in_thread(partial(function, *arguments, **named))
    # A synchronous function may return an awaitable.
    return await result if inspect.isawaitable(result) else result


yielded_values: ContextVar[list[Any]] = ContextVar("tracer_yielded_values")
"""The list to which `collected` appends the values of a generator."""


async def collected(function: Callable[..., Any], /, **arguments: Any) -> Any:
    """Call a function as `called` does. If it is a generator, run it to its end.

    Returns:
        The result; of a generator, the yielded values as a list, or joined if all are texts. They
        are also appended to the list of `yielded_values`, as they arrive.

    Raises:
        Exception: The exception that the function raised.
    """
    values = yielded_values.get(None)
    values = [] if values is None else values
    is_given_up = Event()

    def call() -> Any:
        result = function(**arguments)
        if not inspect.isgenerator(result):
            return result
        with closing(result):
            for each in result:
                values.append(each)
                if is_given_up.is_set():
                    break
        return joined(values)

    if is_async(function):
        result = await function(**arguments)
    else:
        result = await run_in_thread(call, is_given_up.set)
    if inspect.isawaitable(result):
        result = await result
    if not inspect.isasyncgen(result):
        return result
    async with aclosing(result):
        async for each in result:
            values.append(each)
    return joined(values)


def joined(values: list[Any]) -> Any:
    """Return yielded values as one result: joined if all are texts, else as they are."""
    is_text = bool(values) and all(isinstance(each, str) for each in values)
    return "".join(values) if is_text else values


async def run_in_thread(
    function: Callable[..., Answer],
    on_cancel: Callable[[], None] | None = None,
    /,
    **arguments: Any,
) -> Answer:
    """Run `function` in one of the threads for tools, with the context variables of this task.

    A thread cannot be stopped. If the task is cancelled after the function has started, the
    function runs to its end, and its result is returned. If the task is cancelled while the
    function waits for a thread, the function never starts.
    """

    def call() -> Answer:
        _has_thread.set(True)
        return function(**arguments)

    # Nested calls get a thread of their own: waiting for one of the tools' could be a deadlock.
    limiter = anyio.CapacityLimiter(1) if _has_thread.get() else _tool_threads()
    return await call_in_thread(call, limiter, on_cancel)


async def call_in_thread(
    function: Callable[[], Answer],
    limiter: anyio.CapacityLimiter,
    on_cancel: Callable[[], None] | None = None,
) -> Answer:
    """Run `function` in a thread, as `run_in_thread` does, with another limit on the threads.

    Args:
        function: The function to run.
        limiter: Limits the number of threads.
        on_cancel: Called if the task is cancelled after the function has started. It should make
            the function end.
    """
    ticket = Lock()  # its first owner decides whether the call starts

    def call() -> tuple[Answer | None, BaseException | None]:
        if not ticket.acquire(blocking=False):
            return None, asyncio.CancelledError()
        try:
            return function(), None
        except BaseException as error:
            # Returned, not raised: a task that raises `SystemExit` would end the event loop.
            return None, error

    work = asyncio.create_task(anyio.to_thread.run_sync(call, limiter=limiter))
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if ticket.acquire(blocking=False):
                work.cancel()
                raise
            if on_cancel is not None:
                on_cancel()
    answer, error = work.result()
    if error is not None:
        raise error
    return cast("Answer", answer)


def _tool_threads() -> anyio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter
