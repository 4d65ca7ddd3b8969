"""One instance of a stateful tool: how it is made, and how it is cleaned up after."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

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
