"""Periodic jobs: the backlog, retention, abandoned runs, reprojection and packing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.records import LeaseTerms
from tracer.storage.postgres.deletion import PostgresDeletion, PurgeResult
from tracer.storage.postgres.leases import mark_left_runs, mark_recorders
from tracer.storage.postgres.pool import Pool, pooled_connection, store_errors
from tracer.storage.postgres.projection import Reprojection, count_projectors
from tracer.storage.postgres.projects import (
    PeriodicJob,
    SettingsOfProject,
    for_each_project,
    rest_as_long_as_it_took,
)
from tracer.storage.postgres.session import ProjectPool
from tracer.storage.postgres.spans import SpanPacking

# --- The backlog: accepted spans that no projector has read yet.
#
# If the backlog exceeds a limit of bytes, new spans are rejected until projectors catch up. A run
# that has been due for a long time is logged, but is no reason to reject spans.

BACKLOG_LOOK_SECONDS = 60.0
"""The time between two reads of the backlog."""

LATE_SECONDS = 30.0
"""If a run has been due for longer than this, a warning is logged."""

# Runs that failed too often are due at `infinity`: no projector will read them, so their spans
# must not count. Runs that are only projected again have no new spans and are never late. A read of
# a run makes it due before its spans arrived (`catch_up`).
_BACKLOG = """
SELECT coalesce(sum(size), 0)::bigint, coalesce(extract(epoch FROM statement_timestamp()
    - min(greatest(due_at, since)) FILTER (WHERE spans > 0)), 0)::float8
FROM pending_run WHERE due_at < 'infinity'"""

_TO_LINK = """
SELECT count(*), coalesce(extract(epoch FROM statement_timestamp()
    - min(changed_at) FILTER (WHERE revision > abs(linked_revision))), 0)::float8
FROM run WHERE NOT is_linked"""

_DELETE_EXPIRED_SIGN_INS = "DELETE FROM sign_in WHERE expires_at <= now()"

log = get_logger(__name__)


@dataclass(frozen=True)
class BacklogFigures:
    """The backlog of the whole database."""

    size: int = 0
    """The uncompressed bytes of spans."""
    lag: float = 0.0
    """For how many seconds the oldest run with new spans has been due."""
    to_link: int = 0
    """The number of runs whose links to other runs are not up to date."""
    link_lag: float = 0.0
    """How many seconds ago the first of these changed."""


class Backlog(PeriodicJob):
    """Reads the backlog once a minute. Use it as an async context manager."""

    trouble = "backlog_not_read"

    def __init__(self, pool: Pool, max_bytes: int) -> None:
        """Set the limit. The backlog is not read yet.

        Args:
            pool: Connections that see all projects.
            max_bytes: The most bytes of spans that may wait.
        """
        super().__init__(BACKLOG_LOOK_SECONDS)
        self._pool = pool
        self.max_bytes = max_bytes
        self._is_late = False
        self.figures = BacklogFigures()
        """The backlog, at most a minute old."""

    async def run_once(self) -> None:
        """Read the backlog.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                [(size, lag)] = await (await connection.execute(_BACKLOG.encode())).fetchall()
                [to_link] = await (await connection.execute(_TO_LINK)).fetchall()
        self.figures = BacklogFigures(size, lag, *to_link)
        self._log_lateness()

    async def count_projectors(self) -> int:
        """Return how many projectors of all servers are connected to the database.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await count_projectors(self._pool)

    def _log_lateness(self) -> None:
        figures = self.figures
        is_late = figures.lag > LATE_SECONDS
        if is_late and not self._is_late:
            log.warning(
                "projection_late",
                due_for_seconds=round(figures.lag),
                bytes=figures.size,
                what_to_do="Check that projectors run. Raise TRACER_PROJECTORS if cores are idle.",
            )
        elif self._is_late and not is_late:
            log.info("projection_on_time_again")
        self._is_late = is_late


# --- The pruner: deletes runs that projects no longer keep, and the remains of deletions.
#
# Every server runs one. They share the work: if a server stops, the others continue.

PRUNER_LOOK_SECONDS = 300.0
"""The pause in seconds between two passes."""


class Pruner(PeriodicJob):
    """Prunes all projects periodically."""

    trouble = "runs_not_pruned"

    def __init__(
        self,
        pool: Pool,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        look_seconds: float = PRUNER_LOOK_SECONDS,
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
                await connection.execute(_DELETE_EXPIRED_SIGN_INS)

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


# --- The reaper finds recorders that died, so that their unfinished records are shown as abandoned.
#
# Every server runs one. They share the work: if a server stops, the others continue.

REAPER_LOOK_SECONDS = 5.0
"""The pause in seconds between two passes. It is shorter if leases are so short that the reaper
would be late."""


class Reaper(PeriodicJob):
    """Finds dead recorders periodically, in all projects."""

    trouble = "leases_not_looked_after"

    def __init__(
        self,
        pool: Pool,
        terms: LeaseTerms,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        """Set the database.

        Args:
            pool: Connections that see all projects.
            terms: How long leases last.
            on_written: Called with the runs that changed.
            clock: The time of leases; None: the database's clock.
        """
        super().__init__(min(REAPER_LOOK_SECONDS, terms.lease.total_seconds() / 4))
        self._pool = pool
        self._terms = terms
        self._on_written = on_written
        self._clock = clock

    async def run_once(self) -> None:
        """Find the recorders that died or reported again, and mark them in their runs.

        Raises:
            StoreUnavailable: The store does not answer. Completed marks stay.
        """
        moment = self._clock and self._clock()
        with store_errors():
            for mark in (mark_recorders, mark_left_runs):
                async for changed in mark(self._pool, self._terms, moment):
                    self._on_written(changed)


# --- The background job that projects the runs of older versions again. Every server runs one.

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


# --- The background job that merges stored spans. Every server runs one.

PACKER_LOOK_SECONDS = 60.0
"""The pause in seconds between two passes."""


class SpanPacker(PeriodicJob):
    """Merges the spans of all projects. Use it as an async context manager."""

    trouble = "spans_not_packed"

    def __init__(
        self, pool: Pool, look_seconds: float = PACKER_LOOK_SECONDS, clock: Clock | None = None
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
