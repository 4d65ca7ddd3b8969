"""The pruner: deletes what projects do not keep any longer, and what deletions left behind.

Every server has one. They share the work, and it does not matter which of them is alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from uuid import UUID

from tracer.clock import Clock
from tracer.storage.postgres.connection.pool import Pool, borrowed, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.deletion.deletion import PostgresDeletion, PurgeResult
from tracer.storage.postgres.projects.periodic_job import Looker, look_after_each, rested
from tracer.storage.postgres.projects.projects import SettingsOfProject

LOOK_SECONDS = 300.0
"""How long it waits between one look and the next."""


class Pruner(Looker):
    """Prunes all projects while inside. To be entered with `async with`."""

    trouble = "runs_not_pruned"

    def __init__(
        self,
        pool: Pool,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        look_seconds: float = LOOK_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """Connect to the database.

        Args:
            pool: Its connections, which see all projects.
            on_written: Is told which runs are gone.
            look_seconds: How long to wait between one look and the next.
            clock: What time it is; None: the database's own clock.
        """
        super().__init__(look_seconds)
        self._pool = pool
        self._on_written = on_written
        self._clock = clock
        self.done = PurgeResult()
        """What it has deleted so far."""

    async def look(self) -> None:
        """Delete all that is to be deleted, and rest between as long as each deletion took.

        Raises:
            StoreUnavailable: The database does not answer; what was done is done.
        """
        await look_after_each(self._pool, self._look_after, "project_not_pruned")
        with store_errors():
            async with borrowed(self._pool) as connection:
                await connection.execute("DELETE FROM sign_in WHERE expires_at <= now()")

    async def _look_after(self, project: ProjectPool) -> None:
        deletion = PostgresDeletion(project, self._on_written, self._clock)
        settings = await SettingsOfProject(project).read()
        began = time.monotonic()
        async with aclosing(deletion.prune(settings)) as pruning:
            async for result in pruning:
                self.done += result
                began = await rested(began)
        while await deletion.forget_tombstones():
            began = await rested(began)
