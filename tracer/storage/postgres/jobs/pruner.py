"""The pruner: deletes runs that projects no longer keep, and the remains of deletions.

Every server runs one. They share the work: if a server stops, the others continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from uuid import UUID

from tracer.clock import Clock
from tracer.storage.postgres.connection.pool import Pool, pooled_connection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.deletion.deletion import PostgresDeletion, PurgeResult
from tracer.storage.postgres.projects.periodic_job import (
    PeriodicJob,
    for_each_project,
    rest_as_long_as_it_took,
)
from tracer.storage.postgres.projects.projects import SettingsOfProject

LOOK_SECONDS = 300.0
"""The pause in seconds between two passes."""


class Pruner(PeriodicJob):
    """Prunes all projects periodically."""

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
            pool: Connections that see all projects.
            on_written: Called with the runs that were deleted.
            look_seconds: The pause in seconds between two passes.
            clock: The clock; None: the database's own.
        """
        super().__init__(look_seconds)
        self._pool = pool
        self._on_written = on_written
        self._clock = clock
        self.done = PurgeResult()
        """The total of this pruner's deletions."""

    async def run_once(self) -> None:
        """Delete everything that is due, and pause between deletions as long as each took.

        Raises:
            StoreUnavailable: The database does not answer. Completed deletions stay.
        """
        await for_each_project(self._pool, self._prune, "project_not_pruned")
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                await connection.execute("DELETE FROM sign_in WHERE expires_at <= now()")

    async def _prune(self, project: ProjectPool) -> None:
        deletion = PostgresDeletion(project, self._on_written, self._clock)
        settings = await SettingsOfProject(project).read()
        began = time.monotonic()
        async with aclosing(deletion.prune(settings)) as pruning:
            async for result in pruning:
                self.done += result
                began = await rest_as_long_as_it_took(began)
        while await deletion.forget_tombstones():
            began = await rest_as_long_as_it_took(began)
