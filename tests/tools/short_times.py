"""Waiting in tests: for a condition, and with timeouts that are short but long enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Answer = TypeVar("Answer")

PATIENCE = 240.0
"""Seconds to wait for something before a test fails."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE:g} s"
        await asyncio.sleep(0.001)


async def long_enough(
    call: Callable[[float], Awaitable[Answer]], has_begun: Callable[[], object]
) -> Answer:
    """Call with increasing timeouts until the timeout was long enough for the tool to start.

    Args:
        call: Makes the call with a timeout in seconds.
        has_begun: Whether the code that hangs was reached; a thread may take a while to start.
    """
    for seconds in (0.02, 0.2, 2.0, 20.0):
        answer = await call(seconds)
        if has_begun():
            return answer
    raise AssertionError("the tool did not start within 20 s")
