"""A process that may be killed, made by forking: to import everything again takes seconds.

It is forked from a process that imported everything and has one thread: a fork of the tests' own
may inherit a lock that another thread holds, which nobody lets go in there.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 300.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["api.main", "tests.torture.load"])


class Forked:
    """A function that runs in a process of its own, which may be killed."""

    def __init__(self, log: Path, work: Callable[..., None], *given: Any) -> None:
        """Start it.

        Args:
            log: Where it writes what it has to say.
            work: What to do, a function of a module; it is given the end of a pipe first.
            given: What else it is given.
        """
        self.pipe, far_end = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_logging_to, args=(log, work, far_end, *given), daemon=True
        )
        self._process.start()
        far_end.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        """Return what it sends next. Raises `EOFError` where it ended instead."""
        assert self.pipe.poll(seconds), "it does not answer"
        return self.pipe.recv()

    def kill_at_once(self) -> None:
        """Kill it with `kill -9`. What it had sent can still be read."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, if it still runs, and forget it."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.pipe.close()


def _logging_to(log: Path, work: Callable[..., None], *given: Any) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    work(*given)
