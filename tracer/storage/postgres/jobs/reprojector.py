"""The background job that projects the runs of older versions again. Every server runs one."""

from __future__ import annotations

from tracer.storage.postgres.connection.pool import Pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.projects.periodic_job import PeriodicJob, for_each_project
from tracer.storage.postgres.spans.reprojection import Reprojection

PASS_SECONDS = 3_600.0
"""The pause in seconds between two passes over all runs. An older server that still runs may
project some runs meanwhile."""


class Reprojector(PeriodicJob):
    """Makes runs pending again if an older version of the program projected them.

    Enter it with `async with`. The first pass also retries runs whose projection failed
    permanently.
    """

    trouble = "runs_not_projected_again"

    def __init__(self, pool: Pool) -> None:
        """Connect to the database.

        Args:
            pool: Connections that see all projects.
        """
        super().__init__(PASS_SECONDS)
        self._pool = pool
        self._is_first_pass = True

    async def run_once(self) -> None:
        """Make the outdated runs of each project pending, a batch at a time.

        Each batch waits until the one before is projected, so that new spans need not wait long.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        await for_each_project(self._pool, self._look_after, "runs_of_project_not_projected_again")
        self._is_first_pass = False

    async def _look_after(self, project: ProjectPool) -> None:
        reprojection = Reprojection(project)
        async for runs in reprojection.batches(outdated=True, with_failed=self._is_first_pass):
            await reprojection.wait(await reprojection.request(runs))
