"""Heartbeats: renew a recorder's lease at regular intervals, independently of its events."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tracer.logs import get_logger
from tracer.recorder.counts import error_location
from tracer.recorder.outage import STORE_AWAY, Outage
from tracer.store import TraceWriter

log = get_logger(__name__)

ANSWER_SECONDS = 10.0
"""The timeout of one renewal."""

FIRST_PAUSE_SECONDS = 10.0
"""The interval between heartbeats until the store has returned the length of a lease."""


class Heartbeat:
    """Renews a recorder's lease at regular intervals.

    If a renewal fails, the next one is sent after the usual interval, not earlier.
    """

    def __init__(self, writer: TraceWriter, recorder_id: UUID, outage: Outage) -> None:
        """Prepare heartbeats; the first one is sent after `start`."""
        self._outage = outage
        self._writer = writer
        self._recorder_id = recorder_id
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send heartbeats from now on, if not started already."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tracer-lease")

    async def stop(self) -> None:
        """Stop sending heartbeats.

        Records that are still open are abandoned when the lease expires.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=ANSWER_SECONDS)

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        is_logged = False
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    lease = await self._writer.renew(self._recorder_id)
                pause = lease.renew_after.total_seconds()
                is_logged = False
                await self._outage.note_answer(is_lease=True)
            except STORE_AWAY as error:
                await self._outage.note_failure(error, is_lease=True)
            except Exception as error:  # recording must never stop the agent
                if not is_logged:
                    log.warning("lease_not_renewed", error=error_location(error))
                is_logged = True
            # The interval stays the same after a failure, so that recorders that lost a server at
            # the same time do not all return at the same time.
            await asyncio.sleep(pause)
