"""Log when a store becomes unavailable and when it is available again."""

from __future__ import annotations

import asyncio
import os

from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.logs import get_logger
from tracer.recorder.spool import Spool
from tracer.store import WriteAnswer

log = get_logger(__name__)

STORE_AWAY = (StoreUnavailable, SchemaOutOfDate, OSError)
"""Failures of the store and not of the events: the same write may succeed later."""


def failure(task: asyncio.Task[WriteAnswer]) -> BaseException | None:
    """Return the error of a finished write; None if the write succeeded."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


class Outage:
    """The state of one recorder's store.

    The recorder, the drainer and the heartbeat report failures and answers here, so that an outage
    is logged once.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._problems: set[str] = set()
        """The problems logged in this outage; empty if the store is available."""
        self._started = 0.0
        self._has_write_failed = False

    async def note_failure(self, error: BaseException, *, is_lease: bool = False) -> None:
        """Report that the store failed. Log it at the start of an outage.

        During an outage, each different problem of a write is logged once.
        """
        problem, what_to_do, address = _describe(error)
        is_new = not self._problems
        if not is_new and (is_lease or problem in self._problems):
            return
        # Before the first await, because a heartbeat and a write may fail at the same time.
        self._problems.add(problem)
        self._has_write_failed = self._has_write_failed or not is_lease
        if is_new:
            self._started = asyncio.get_running_loop().time()
        log.warning(
            "store_unavailable",
            **self._address(address),
            problem=problem,
            what_to_do=what_to_do,
            **await self._waiting(),
        )

    async def note_answer(self, *, is_lease: bool = False) -> None:
        """Report that the store answered. Log it at the end of an outage.

        A renewed lease does not end an outage in which writes failed.
        """
        if not self._problems or (is_lease and self._has_write_failed):
            return
        self._problems.clear()
        self._has_write_failed = False
        seconds = round(asyncio.get_running_loop().time() - self._started, 1)
        log.warning(
            "store_available_again",
            **self._address(),
            after_seconds=seconds,
            what_to_do="Nothing: the waiting events are being sent.",
            **await self._waiting(),
        )

    async def log_left_events(self) -> None:
        """Log that the recorder ends while events are still in the spool."""
        log.info(
            "events_left_in_spool",
            **self._address(),
            **await self._waiting(),
            what_to_do="Nothing: the next program with the same TRACER_HOME, address and key "
            "sends them.",
        )

    def _address(self, address: str | None = None) -> dict[str, object]:
        if self._spool.destination is not None:
            address = self._spool.destination.address
        return {} if address is None else {"address": address}

    async def _waiting(self) -> dict[str, object]:
        try:
            events: int | None = await self._spool.count()
        except Exception:  # failures of the spool are logged by `append`
            events = None
        return {"waiting_events": events, "waiting_in": str(self._spool.path)}


def _describe(error: BaseException) -> tuple[str, str, str | None]:
    """Return the problem, the remedy, and the store's address if the error contains an address."""
    match error:
        case StoreUnavailable():
            return error.problem, error.what_to_do, error.address
        case SchemaOutOfDate():
            return "the database's schema has another version", "Run `tracer migrate`.", None
        case TimeoutError():
            return "no answer in time", _CHECK, None
        case OSError(errno=int(code)):
            return os.strerror(code).lower(), _CHECK, None
        case OSError():
            return f"the connection failed ({type(error).__name__})", _CHECK, None
        case _:
            return "the write was cancelled", _CHECK, None


_CHECK = "Check that the store runs."
