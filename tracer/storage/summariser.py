"""The summariser: sums up how the tools' calls of old hours went, a few hours at a time.

Every server has one. They share the work, and it does not matter which of them is alive.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from psycopg.errors import SerializationFailure

from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.storage.citus import is_spread
from tracer.storage.engine import Pool, borrowed, store_errors
from tracer.storage.looker import Looker, look_after_each, rested
from tracer.storage.project_pool import ProjectPool, in_project
from tracer.storage.summing_statements import BEGIN, NEXT, OLDEST_TRANSACTION, SUM_UP, TAKE

LOOK_SECONDS = 60.0
"""How long it waits between one look and the next."""

log = get_logger(__name__)


class Summariser(Looker):
    """Sums up all projects while inside. To be entered with `async with`."""

    trouble = "hours_not_summed"

    def __init__(
        self, pool: Pool, look_seconds: float = LOOK_SECONDS, clock: Clock | None = None
    ) -> None:
        """Connect to the database.

        Args:
            pool: Its connections, which see all projects.
            look_seconds: How long to wait between one look and the next.
            clock: What time it is; None: the database's own clock.
        """
        super().__init__(look_seconds)
        self._pool = pool
        self._clock = clock
        self.stretches = 0
        """How many hours, or stretches of them, it has summed up so far."""

    async def look(self) -> None:
        """Sum up all that is to be summed up, and rest between as long as each turn took.

        Raises:
            StoreUnavailable: The database does not answer; what was done is done.
        """
        with store_errors():
            if await is_spread(self._pool):
                return
        await look_after_each(self._pool, self._look_after, self.trouble)

    async def _look_after(self, project: ProjectPool) -> None:
        began = time.monotonic()
        done = 0
        async with aclosing(turns(project, self._clock)) as summing:
            async for stretches in summing:
                done += stretches
                self.stretches += stretches
                began = await rested(began)
        if done:
            log.info("hours_summed", project_id=project.project_id, stretches=done)


async def turns(project: ProjectPool, clock: Clock | None = None) -> AsyncGenerator[int, None]:
    """Sum up what is to be summed up of a project, unless somebody else does.

    Args:
        project: Whose hours.
        clock: What time it is; None: the database's own clock.

    Yields:
        How many stretches of time each transaction summed up, after it: whoever asks may rest.

    Raises:
        StoreUnavailable: The database does not answer; what was done is done.
    """
    with store_errors():
        while True:
            try:
                stretches = await _turn(project, clock)
            except SerializationFailure:  # somebody else was ahead
                return
            if not stretches:
                return
            yield stretches


async def _turn(project: ProjectPool, clock: Clock | None) -> int:
    """Sum up some stretches in one transaction, and return how many."""
    # Before the snapshot, and as the owner: others do not see what sessions do.
    async with borrowed(project.pool) as connection:
        [(oldest,)] = await (await connection.execute(OLDEST_TRANSACTION)).fetchall()
    given: dict[str, Any] = {
        "project_id": project.project_id,
        "now": clock and clock(),
        "oldest": oldest,
    }
    async with in_project(project, seconds=None, sees_one_state=True) as connection:
        await connection.execute(BEGIN, given)
        if not await (await connection.execute(TAKE, given)).fetchall():
            return 0
        await connection.execute(_BY_INDEX)
        [(sinces, untils)] = await (await connection.execute(NEXT, given)).fetchall()
        if sinces is None:
            return 0
        given |= {"sinces": sinces, "untils": untils}
        for statement in SUM_UP:
            await connection.execute(statement, given)
        return len(sinces)


# The planner knows nothing of how many calls an hour has.
_BY_INDEX = "SELECT set_config('enable_seqscan', 'off', true)"
