"""The background job that merges stored spans. Every server runs one."""

from __future__ import annotations

import time
from contextlib import aclosing

from tracer.clock import Clock
from tracer.storage.postgres.connection.pool import Pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.projects.periodic_job import (
    PeriodicJob,
    for_each_project,
    rest_as_long_as_it_took,
)
from tracer.storage.postgres.spans.packing import SpanPacking

LOOK_SECONDS = 60.0
"""The pause in seconds between two passes."""


class SpanPacker(PeriodicJob):
    """Merges the spans of all projects. Use it as an async context manager."""

    trouble = "spans_not_packed"

    def __init__(
        self, pool: Pool, look_seconds: float = LOOK_SECONDS, clock: Clock | None = None
    ) -> None:
        """Connect to the database.

        Args:
            pool: Connections that see all projects.
            look_seconds: The pause between two passes.
            clock: The clock by which runs are due for merging; None: the database's own clock.
        """
        super().__init__(look_seconds)
        self._pool = pool
        self._clock = clock

    async def run_once(self) -> None:
        """Merge the spans of all due runs. Pause after each run for as long as it took."""
        await for_each_project(self._pool, self._look_after, "spans_of_project_not_packed")

    async def _look_after(self, project: ProjectPool) -> None:
        packing = SpanPacking(project, self._clock)
        began = time.monotonic()
        async with aclosing(packing.merge()) as runs:
            async for _ in runs:
                began = await rest_as_long_as_it_took(began)
