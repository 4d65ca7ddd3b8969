"""Times that are soon over, and yet not before what has to happen within them has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

Answer = TypeVar("Answer")

PATIENCE = 60.0
"""Seconds after which what should have happened has not."""


async def long_enough(
    call: Callable[[float], Awaitable[Answer]], has_begun: Callable[[], object]
) -> Answer:
    """Call with longer and longer times, until one was long enough for the tool to begin.

    Args:
        call: Makes the call, whose time is over after so many seconds.
        has_begun: Whether what hangs was reached; threads may take a while to start.
    """
    for seconds in (0.02, 0.2, 2.0, 20.0):
        answer = await call(seconds)
        if has_begun():
            return answer
    raise AssertionError("it never began")
