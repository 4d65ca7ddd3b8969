"""Threads for synchronous tools: bounded, with the caller's context, and never lost sight of."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import RunVar

MAX_THREADS = 64
"""How many synchronous tools run at once in one event loop; others wait their turn."""

Answer = TypeVar("Answer")

_has_thread: ContextVar[bool] = ContextVar("tracer_has_thread", default=False)
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("tracer_tool_threads")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of `function` is to be awaited, and needs no thread."""
    if isinstance(function, partial):
        return is_async(function.func)
    own = function if inspect.isroutine(function) else type(function).__call__
    # A wrapper may be asynchronous where what it wraps is not, and the other way round.
    return any(map(inspect.iscoroutinefunction, (own, inspect.unwrap(own))))


def is_generator(function: object) -> bool:
    """Return whether a call of `function` only makes a generator: its body would never run."""
    if isinstance(function, partial):
        return is_generator(function.func)
    own = function if inspect.isroutine(function) else type(function).__call__
    return inspect.isgeneratorfunction(own) or inspect.isasyncgenfunction(own)


async def called(function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """Call somebody else's function and return its result: in a thread unless it is asynchronous.

    Raises:
        Exception: What it raised.
    """
    if is_async(function):
        return await function(*given, **named)
    result = await run_in_thread(partial(function, *given, **named))
    # What is not declared async may still hand back something to wait for.
    return await result if inspect.isawaitable(result) else result


async def run_in_thread(function: Callable[..., Answer], /, **arguments: Any) -> Answer:
    """Call `function` in one of the tools' threads, which has this task's context variables.

    A thread cannot be stopped. To cancel a call that has begun changes nothing: it is waited for
    and its result returned, like that of a coroutine that swallows its cancellation. A call that
    still waits for a thread is cancelled and never begins.
    """

    def call() -> Answer:
        _has_thread.set(True)
        return function(**arguments)

    # Who waits for this call in one of the tools' threads must not wait for another of them.
    limiter = anyio.CapacityLimiter(1) if _has_thread.get() else _tool_threads()
    return await call_in_thread(call, limiter)


async def call_in_thread(
    function: Callable[[], Answer],
    limiter: anyio.CapacityLimiter,
    on_cancel: Callable[[], None] | None = None,
) -> Answer:
    """Call `function` in a thread; see `run_in_thread`.

    Args:
        function: What to call.
        limiter: Whose threads to take.
        on_cancel: Called when a call that has begun is cancelled, to make it end.
    """
    ticket = Lock()  # whoever takes it decides whether the call begins

    def call() -> tuple[Answer | None, BaseException | None]:
        if not ticket.acquire(blocking=False):
            return None, asyncio.CancelledError()
        try:
            return function(), None
        except BaseException as error:
            # Handed over as a value: a task that ends with `SystemExit` ends the event loop too.
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
