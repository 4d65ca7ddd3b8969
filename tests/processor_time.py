"""A limit of the time that a test's own process works, which a busy machine does not change."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def processor_limit(seconds: int) -> Iterator[None]:
    """Fail the test that works longer than this. Time in which the process waits does not count."""

    def fail(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"This took more than {seconds} seconds of processor time.")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
