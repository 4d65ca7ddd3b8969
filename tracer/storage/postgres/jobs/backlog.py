"""The backlog: accepted spans that no projector has read yet.

If the backlog exceeds a limit of bytes, new spans are rejected until projectors catch up. A run
that has been due for a long time is logged, but is no reason to reject spans.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracer.errors import TooBusy
from tracer.logs import get_logger
from tracer.storage.postgres.connection.pool import Pool, pooled_connection, store_errors
from tracer.storage.postgres.projects.periodic_job import PeriodicJob
from tracer.storage.postgres.spans.projector_session import count_projectors

LOOK_SECONDS = 60.0
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

log = get_logger(__name__)


@dataclass(frozen=True)
class BacklogFigures:
    """The backlog of the whole database."""

    size: int = 0
    """The uncompressed bytes of spans."""
    lag: float = 0.0
    """For how many seconds the oldest run with new spans has been due."""


class Backlog(PeriodicJob):
    """Reads the backlog once a minute. Use it as an async context manager."""

    trouble = "backlog_not_read"

    def __init__(self, pool: Pool, max_bytes: int) -> None:
        """Set the limit. The backlog is not read yet.

        Args:
            pool: Connections that see all projects.
            max_bytes: The most bytes of spans that may wait.
        """
        super().__init__(LOOK_SECONDS)
        self._pool = pool
        self._max_bytes = max_bytes
        self._is_late = False
        self.figures = BacklogFigures()
        """The backlog, at most a minute old."""

    def check(self) -> None:
        """Check that spans may be sent.

        Raises:
            TooBusy: Too many bytes were not projected yet when the backlog was last read.
        """
        if self.figures.size > self._max_bytes:
            raise TooBusy(
                f"The server has {self.figures.size} bytes of spans that are not projected yet; "
                f"its limit is {self._max_bytes}. Send the request again later."
            )

    async def run_once(self) -> None:
        """Read the backlog.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with pooled_connection(self._pool) as connection:
                [row] = await (await connection.execute(_BACKLOG.encode())).fetchall()
        self.figures = BacklogFigures(*row)
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
