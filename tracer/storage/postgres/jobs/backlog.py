"""The backlog: accepted spans that no projector has read yet.

If the backlog exceeds a limit of bytes, new spans are rejected until projectors catch up. A run
that has been due for a long time is logged, but is no reason to reject spans.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.errors import TooBusy
from tracer.logs import get_logger
from tracer.storage.postgres.connection.pool import Pool, pooled_connection, store_errors
from tracer.storage.postgres.projects.periodic_job import PeriodicJob
from tracer.storage.postgres.spans.projectors import count_projectors

READ_SECONDS = 1.0
"""The shortest time between two reads of the backlog."""

LATE_SECONDS = 30.0
"""If a run has been due for longer than this, a warning is logged."""

PROJECT_SHARE = 4
"""The limit of a single project is the whole limit divided by this number. So a project that sends
spans faster than they are projected does not block the others."""

# Runs that failed too often are due at `infinity`: no projector will read them, so their spans
# must not count. Runs that are only projected again have no new spans and are never late. A read of
# a run makes it due before its spans arrived (`catch_up`).
_BACKLOG = """
SELECT project_id, sum(size)::bigint, count(*),
    extract(epoch FROM statement_timestamp()
        - min(greatest(due_at, since)) FILTER (WHERE spans > 0))::float8
FROM pending_run WHERE due_at < 'infinity' GROUP BY project_id"""

log = get_logger(__name__)


@dataclass(frozen=True)
class BacklogFigures:
    """The backlog of the whole database."""

    sizes: Mapping[int, int] = field(default_factory=dict)
    """The bytes of spans, uncompressed, by project."""
    runs: int = 0
    lag: float = 0.0
    """For how many seconds the oldest run with new spans has been due."""

    @property
    def size(self) -> int:
        """The uncompressed bytes of spans of all projects."""
        return sum(self.sizes.values())


class Backlog(PeriodicJob):
    """Reads the backlog periodically while spans wait. Use it as an async context manager."""

    trouble = "backlog_not_read"

    def __init__(self, pool: Pool, max_bytes: int) -> None:
        """Set the limit. The backlog is not read yet.

        Args:
            pool: Connections that see all projects.
            max_bytes: The most bytes of spans that may wait.
        """
        super().__init__(READ_SECONDS)
        self._pool = pool
        self._max_bytes = max_bytes
        self._figures = BacklogFigures()
        self._added = Counter[int]()
        """The bytes that this process accepted after it last read the backlog, by project."""
        self._read_at = -READ_SECONDS
        self._reading = asyncio.Lock()
        self._is_late = False
        self._news = asyncio.Event()
        self._news.set()  # an earlier server may have left something

    def check(self, project_id: int) -> None:
        """Check that a project may send spans.

        Raises:
            TooBusy: Too many bytes of the project, or of all projects, are not projected yet.
        """
        own = self._figures.sizes.get(project_id, 0) + self._added[project_id]
        everything = self._figures.size + self._added.total()
        for owner, size, limit in (
            ("project", own, self._max_bytes // PROJECT_SHARE),
            ("server", everything, self._max_bytes),
        ):
            if size > limit:
                raise TooBusy(
                    f"The {owner} has {size} bytes of spans that are not projected yet; its limit "
                    f"is {limit}. Send the request again later."
                )

    def add(self, project_id: int, size: int) -> None:
        """Count spans that were accepted.

        Args:
            project_id: Their project.
            size: Their size in bytes.
        """
        self._added[project_id] += size
        self._news.set()

    async def run_once(self) -> None:
        """Wait until there may be a backlog, and read it."""
        await self._news.wait()
        self._news.clear()
        try:
            figures = await self.read()
        except BaseException:
            self._news.set()
            raise
        if figures.runs:
            self._news.set()

    async def read(self) -> BacklogFigures:
        """Return the backlog, at most a second old.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        async with self._reading:
            if time.monotonic() - self._read_at >= READ_SECONDS:
                # Spans that are accepted during the query may count twice until the next one.
                added, self._added = self._added, Counter()
                try:
                    self._figures = await self._read()
                except BaseException:
                    self._added.update(added)
                    raise
                self._read_at = time.monotonic()
                self._log_lateness()
        return self._figures

    async def count_projectors(self) -> int:
        """Return how many projectors of all servers are connected to the database.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await count_projectors(self._pool)

    async def _read(self) -> BacklogFigures:
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                rows = await (await connection.execute(_BACKLOG.encode())).fetchall()
        return BacklogFigures(
            sizes={project_id: size for project_id, size, _, _ in rows},
            runs=sum(runs for _, _, runs, _ in rows),
            lag=max((0.0, *(lag for _, _, _, lag in rows if lag is not None))),
        )

    def _log_lateness(self) -> None:
        figures = self._figures
        is_late = figures.lag > LATE_SECONDS
        if is_late and not self._is_late:
            log.warning(
                "projection_late",
                due_for_seconds=round(figures.lag),
                runs=figures.runs,
                bytes=figures.size,
                what_to_do="Check that projectors run. Raise TRACER_PROJECTORS if cores are idle.",
            )
        elif self._is_late and not is_late:
            log.info("projection_on_time_again")
        self._is_late = is_late
