"""Threads in which large writes are redacted, so that the event loop is not blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

MAX_THREADS = 2
"""More threads would use more memory but not be faster, because Python runs one at a time."""

_threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="tracer-redaction")

Result = TypeVar("Result")


async def in_redaction_thread(call: Callable[[], Result]) -> Result:
    """Run `call` in one of at most `MAX_THREADS` threads, and return its result.

    A thread cannot be stopped. If the caller is cancelled, this function waits until the thread has
    ended, and then raises `CancelledError`. Raising earlier would release the request's memory
    while the thread still uses it.
    """
    running = _threads.submit(call)
    future = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        running.cancel()  # has an effect only if no thread has taken it yet
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # retrieved, because asyncio logs errors that are not
        raise
