"""Wait for asyncio tasks that run code of the application, with deadlines and cancellation."""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import Any

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
