"""The pruner: deletes what projects do not keep any longer, and what deletions left behind.

Every server has one. They share the work, and it does not matter which of them is alive.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from uuid import UUID

from tracer.clock import Clock
from tracer.errors import StoreUnavailable
from tracer.logs import get_logger
from tracer.storage.engine import Pool, borrowed, store_errors
from tracer.storage.looker import Looker
from tracer.storage.postgres_deletion import PostgresDeletion, Swept
from tracer.storage.postgres_leases import forget_leases
from tracer.storage.project_pool import ProjectPool
from tracer.storage.projects import SettingsOfProject, list_projects

LOOK_SECONDS = 300.0
"""How long it waits between one look and the next."""

log = get_logger(__name__)


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
        self.done = Swept()
        """What it has deleted so far."""

    async def look(self) -> None:
        """Delete all that is to be deleted, and rest between as long as each deletion took.

        Raises:
            StoreUnavailable: The database does not answer; what was done is done.
        """
        for project_id in (await list_projects(self._pool)).values():
            try:
                await self._look_after(ProjectPool(self._pool, project_id))
            except StoreUnavailable:
                raise
            except Exception as error:  # whatever it is, the other projects have nothing to do with
                log.error("project_not_pruned", project_id=project_id, error=type(error).__name__)
        with store_errors():
            async with borrowed(self._pool) as connection:
                await forget_leases(connection)
                await connection.execute("DELETE FROM sign_in WHERE expires_at <= now()")

    async def _look_after(self, project: ProjectPool) -> None:
        deletion = PostgresDeletion(project, self._on_written, self._clock)
        settings = await SettingsOfProject(project).read()
        began = time.monotonic()
        async with aclosing(deletion.prune(settings)) as pruning:
            async for swept in pruning:
                self.done += swept
                began = await _rested(began)
        while await deletion.forget_tombstones():
            began = await _rested(began)


async def _rested(began: float) -> float:
    """Rest for as long as it took since `began`, and return when that was over."""
    await asyncio.sleep(time.monotonic() - began)
    return time.monotonic()
