"""The background job that projects the runs of older versions again. Every server runs one."""

from __future__ import annotations

import time
from uuid import UUID

from tracer.otel.projection.project import PROJECTION_VERSION
from tracer.storage.postgres.connection.pool import Pool, pooled_connection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, reading
from tracer.storage.postgres.projects.periodic_job import PeriodicJob, for_each_project
from tracer.storage.postgres.spans.reprojection import FIRST_ID, Reprojection

RUNS_AT_ONCE = 50
"""How many runs of a project are made pending at a time."""

SCANNED_AT_ONCE = 10_000
"""How many runs one query examines. Runs have no index by projection version, because every
projection would have to maintain it. A server examines the runs only after it starts and every
`PASS_SECONDS`."""

PASS_SECONDS = 3_600.0
"""The pause in seconds after all runs were examined. An older server that still runs may project
some of them meanwhile, so they are examined again."""

LOOK_SECONDS = 1.0

_IS_ANY_DUE = "SELECT EXISTS (SELECT FROM pending_run WHERE due_at <= statement_timestamp())"

_OUTDATED = """
WITH next AS (
    SELECT root_plan_id,
        deleted_at IS NULL AND source = 'spans' AND projection_version < %(version)s
        AND NOT EXISTS (
            SELECT FROM pending_run AS pending
            WHERE pending.project_id = run.project_id AND pending.root_plan_id = run.root_plan_id
                AND (pending.due_at < 'infinity' OR NOT %(with_failed)s)) AS is_outdated
    FROM run WHERE project_id = %(project_id)s AND root_plan_id > %(after)s
    ORDER BY root_plan_id LIMIT %(scanned)s
)
SELECT (SELECT root_plan_id FROM next ORDER BY root_plan_id DESC LIMIT 1),
    ARRAY(SELECT root_plan_id FROM next WHERE is_outdated ORDER BY root_plan_id LIMIT %(most)s)"""


class Reprojector(PeriodicJob):
    """Makes runs pending again if an older version of the program projected them.

    Newly arrived spans are projected first. Enter it with `async with`. The first pass also retries
    runs whose projection failed permanently.
    """

    trouble = "runs_not_projected_again"

    def __init__(
        self, pool: Pool, look_seconds: float = LOOK_SECONDS, runs_at_once: int = RUNS_AT_ONCE
    ) -> None:
        """Connect to the database.

        Args:
            pool: Connections that see all projects.
            look_seconds: The pause between two runs of the job, in seconds.
            runs_at_once: How many runs of a project are made pending at a time.
        """
        super().__init__(look_seconds)
        self._pool = pool
        self._runs_at_once = runs_at_once
        self._places: dict[int, UUID | None] = {}
        self._is_first_pass = True
        self._passed_at: float | None = None

    async def run_once(self) -> None:
        """Make some outdated runs of each project pending, unless any run is due.

        After all runs were examined, the job sends no query for `PASS_SECONDS`.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        if self._passed_at is not None:
            if time.monotonic() - self._passed_at < PASS_SECONDS:
                return
            self._places, self._is_first_pass = {}, False
        self._passed_at = time.monotonic()
        await for_each_project(self._pool, self._look_after, "runs_of_project_not_projected_again")

    async def _look_after(self, project: ProjectPool) -> None:
        while (after := self._places.get(project.project_id, FIRST_ID)) is not None:
            if await self._is_any_due():
                self._passed_at = None
                return
            last, runs = await self._outdated(project, after)
            await Reprojection(project).request(runs)
            is_full = len(runs) == self._runs_at_once
            self._places[project.project_id] = runs[-1] if is_full else last

    async def _is_any_due(self) -> bool:
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                [(is_any_due,)] = await (await connection.execute(_IS_ANY_DUE)).fetchall()
        return bool(is_any_due)

    async def _outdated(self, project: ProjectPool, after: UUID) -> tuple[UUID | None, list[UUID]]:
        """Examine runs after `after`. Return the last examined run and the outdated runs."""
        parameters = {
            **{"project_id": project.project_id, "version": PROJECTION_VERSION, "after": after},
            **{"with_failed": self._is_first_pass, "scanned": SCANNED_AT_ONCE},
            "most": self._runs_at_once,
        }
        with store_errors():
            async with reading(project) as connection:
                [row] = await (await connection.execute(_OUTDATED, parameters)).fetchall()
        last, runs = row
        return last, runs
