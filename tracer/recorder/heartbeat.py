"""A recorder's lease: says again and again that the recorder lives, apart from its events."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tracer.logs import get_logger
from tracer.recorder.counts import error_place
from tracer.recorder.outage import STORE_AWAY, Outage
from tracer.store import TraceWriter

log = get_logger(__name__)

ANSWER_SECONDS = 10.0
"""How long the store may take to renew a lease."""

FIRST_PAUSE_SECONDS = 10.0
"""When to try again while the store has not said how long a lease is."""


class LeaseKeeper:
    """Renews a recorder's lease in its own rhythm. What fails is tried again at the next turn."""

    def __init__(self, writer: TraceWriter, recorder_id: UUID, outage: Outage) -> None:
        """Name the store and the recorder; nothing is renewed before `begin`."""
        self._outage = outage
        self._writer = writer
        self._recorder_id = recorder_id
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Renew from now on: the recorder has something to live for."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name="tracer-lease")

    async def end(self) -> None:
        """Renew no more. What the recorder left open is judged when its lease has run out."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping}, timeout=ANSWER_SECONDS)

    async def _keep(self) -> None:
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
            except Exception as error:  # whatever it is, the agent goes on
                if not is_logged:
                    log.warning("lease_not_renewed", error=error_place(error))
                is_logged = True
            # No other pause after a failure: so recorders that lost a server together do not come
            # back together.
            await asyncio.sleep(pause)
