"""Waiting for other people's code: until it ends, until its time is over, or until cancelled."""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import Any

GRACE_SECONDS = 0.25
"""How long code that was cancelled may take to clean up before it is left alone."""


class Waited(Enum):
    """How waiting for a task came to its end."""

    ENDED = "ended"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    """We were. The task may have ended by itself just before; then nobody has cancelled it."""


async def wait_for_end(
    work: asyncio.Task[Any], deadline: float | None, grace: float | None = GRACE_SECONDS
) -> Waited:
    """Wait for a task, and cancel it when its time is over or when we are cancelled ourselves.

    Never raises: to be cancelled is an answer too, which the caller has to heed. A task that goes
    on regardless is left alone after a while (`work.done()` tells).

    Args:
        work: The task.
        deadline: When its time is over, as `time.monotonic()` tells it; None: never.
        grace: How many seconds it may take to end once cancelled; None: as long as it takes.
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
    """Wait for the end of what must not be left half-way, also when we are cancelled meanwhile.

    Returns:
        Our cancellation, for the caller to heed.

    Raises:
        Exception: What `work` raised.
    """
    cancellation: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation


def seconds_left(deadline: float | None) -> float | None:
    """Return how long there is until a deadline, 0 once it has passed; None without one."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def has_passed(deadline: float | None) -> bool:
    """Return whether a deadline has passed."""
    return seconds_left(deadline) == 0


def capped_deadline(deadline: float | None, timeout: float | None) -> float | None:
    """Return a deadline that is at most `timeout` seconds away."""
    if timeout is None:
        return deadline
    own = time.monotonic() + timeout
    return own if deadline is None else min(own, deadline)
