"""One instance of a stateful tool: how it is made, and how it is cleaned up after."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from tracer.tools.threads import call_in_thread, run_in_thread

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
            await _call(instance.close, _in_thread_of_its_own)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return error
    return None


async def called(function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """Call somebody else's function and return its result: in a thread unless it is asynchronous.

    Raises:
        Exception: What it raised.
    """
    return await _call(partial(function, *given, **named), run_in_thread)


async def _call(call: Callable[[], Any], in_thread: Callable[..., Awaitable[Any]]) -> Any:
    if _is_async(call):
        return await call()
    result = await in_thread(call)
    # What is not declared async may still hand back something to wait for.
    return await result if inspect.isawaitable(result) else result


async def _in_thread_of_its_own(call: Callable[[], Any]) -> Any:
    # Cleaning up has little time, and none to wait until tools give up their threads.
    return await call_in_thread(call, anyio.CapacityLimiter(1))


def _is_async(function: Callable[..., Any]) -> bool:
    if isinstance(function, partial):
        return _is_async(function.func)
    own = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(inspect.unwrap(own))
