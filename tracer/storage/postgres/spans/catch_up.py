"""Projecting the pending spans of a run before the run is read.

Small runs are projected in a thread of this process. For larger runs, a projector process is woken.
docs/explanation/projection.md describes the projection itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from tracer.clock import Clock
from tracer.logs import get_logger
from tracer.otel.otlp.span_fields import run_ids_like
from tracer.records.leases import DEFAULT_TERMS, LeaseTerms
from tracer.records.merge import RULES
from tracer.records.record_classes import Kind
from tracer.storage.postgres.connection.notifications import WAKE_PROJECTORS
from tracer.storage.postgres.connection.pool import (
    ANSWER_SECONDS,
    SyncConnection,
    connection_options,
    open_sync_connection,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.connection.project_session import ProjectPool, executed, reading
from tracer.storage.postgres.schema.record_tables import TABLES
from tracer.storage.postgres.spans.projector import Projector
from tracer.store import Behind

LOCAL_PROJECTORS = 2
"""The most projections in this process at once."""

LOCAL_SPANS = 1000
"""The most pending spans of a run that is projected in this process."""

READ_SPANS = 5000
"""If a run has more pending spans, a reader does not wait for their projection, unless it sets
`any_size`."""

FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH = 0.02, 0.25, 1.5
"""The pauses in seconds between two checks of a run that another process projects: the first one,
the longest one, and the factor by which they grow."""

CANDIDATES = 10
"""The most pending runs that are projected before one record is read. These are the runs whose ids
begin with the same bytes as the record's id."""

T = TypeVar("T")

log = get_logger(__name__)


class LocalProjectors:
    """The projectors in this process, which project runs before they are read.

    Enter it with `async with`. Each projector has a synchronous connection, which is opened when
    it is first needed and closed when a projection fails.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        terms: LeaseTerms = DEFAULT_TERMS,
        most: int = LOCAL_PROJECTORS,
    ) -> None:
        """Set the database.

        Args:
            url: The database's URL, without a transaction-mode pooler.
            clock: Returns the time, in tests; None: the database's own clock.
            terms: How long the leases of runs in progress last.
            most: The most projections of runs at once.
        """
        self.clock = clock
        self._options = connection_options(url)
        self._terms = terms
        self._most = most
        self._idle: list[tuple[SyncConnection, Projector]] = []
        self._projections: dict[tuple[int, UUID], asyncio.Task[bool]] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closed = True
        if self._projections:
            await asyncio.wait(self._projections.values(), timeout=ANSWER_SECONDS)
        while self._idle:
            self._idle.pop()[0].close()

    def projection_of(self, project_id: int, root_plan_id: UUID) -> asyncio.Task[bool] | None:
        """Return the task that projects a run in this process; None if there is none."""
        return self._projections.get((project_id, root_plan_id))

    def project(self, project_id: int, root_plan_id: UUID) -> asyncio.Task[bool] | None:
        """Start a task that projects a run, and return it; None if all projectors are busy.

        The task returns whether the run was projected, and raises no error.
        """
        if len(self._projections) >= self._most or self._is_closed:
            return None
        key = project_id, root_plan_id
        # A new context: the projection is not part of the request that happens to start it.
        task = asyncio.create_task(self._project(*key), context=Context())
        self._projections[key] = task
        task.add_done_callback(lambda _: self._projections.pop(key))
        return task

    async def project_untried(self, project_id: int, root_plan_id: UUID, attempts: int) -> bool:
        """Project a run if no attempt has been counted.

        An earlier attempt may have killed the process that ran it. This process must not take that
        risk.

        Returns:
            Whether the run was projected.
        """
        projection = None if attempts else self.project(project_id, root_plan_id)
        return projection is not None and await projection

    async def _project(self, project_id: int, root_plan_id: UUID) -> bool:
        try:
            return await self.run(lambda projector: projector.project_run(project_id, root_plan_id))
        except Exception as error:  # a failed projection must not fail the readers of the run
            log.warning(
                "run_not_projected",
                project_id=project_id,
                root_plan_id=str(root_plan_id),
                error=type(error).__name__,
            )
            return False

    async def run(self, work: Callable[[Projector], T]) -> T:
        """Run `work` in a thread with a projector, and return its result.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            return await asyncio.to_thread(self._work, work)

    def _work(self, work: Callable[[Projector], T]) -> T:
        connection, projector = self._idle.pop() if self._idle else self._open()
        try:
            result = work(projector)
        except BaseException:
            connection.close()  # its session may hold a claim
            raise
        self._idle.append((connection, projector))
        return result

    def _open(self) -> tuple[SyncConnection, Projector]:
        connection = open_sync_connection(self._options)
        return connection, Projector(connection, clock=self.clock, terms=self._terms)


@dataclass(frozen=True)
class _PendingRun:
    root_plan_id: UUID
    arrived: int
    spans: int
    since: datetime
    attempts: int
    projected: int
    error: str | None

    @property
    def behind(self) -> Behind:
        return Behind(self.spans, self.since, self.error)


class PostgresProjection:
    """`tracer.store.SpanProjection` over a project's connections."""

    def __init__(
        self,
        project: ProjectPool,
        projectors: LocalProjectors,
        *,
        local_spans: float = LOCAL_SPANS,
    ) -> None:
        """Set the project, and the projectors of its small runs.

        Args:
            project: The connections of the project.
            projectors: The projectors of this process.
            local_spans: The most pending spans of a run that these projectors project.
        """
        self._project = project
        self._local_spans = local_spans
        self._project_id = project.project_id
        self._projectors = projectors

    async def project_due(self, now: datetime | None = None) -> int:
        """Project the runs that are due."""
        projected = 0
        while True:
            done = await self._projectors.run(lambda projector: projector.project_due(now))
            if not done.projected:
                return projected
            projected += done.projected

    async def catch_up(
        self, kind: Kind, record_id: UUID, *, seconds: float = 2.0, any_size: bool = False
    ) -> Behind | None:
        """Project the pending spans of a record's run."""
        end = asyncio.get_running_loop().time() + seconds
        backlogs = [
            behind
            for run in await self._find(kind, record_id)
            if (behind := await self._catch_up(run, end, any_size=any_size)) is not None
        ]
        if not backlogs:
            return None
        return Behind(
            sum(each.spans for each in backlogs),
            min(each.since for each in backlogs),
            next((each.error for each in backlogs if each.error is not None), None),
        )

    async def _catch_up(self, run: _PendingRun, end: float, *, any_size: bool) -> Behind | None:
        if run.spans > READ_SPANS and not any_size:
            return run.behind
        time = asyncio.get_running_loop().time
        run_id, arrived = run.root_plan_id, run.arrived
        is_woken, pause = False, FIRST_PAUSE
        while run.error is None:
            projection = self._projectors.projection_of(self._project_id, run_id)
            # The last projection of a run with open attempts may have ended its process.
            if projection is None and run.attempts == 0 and run.spans <= self._local_spans:
                projection = self._projectors.project(self._project_id, run_id)
            if projection is not None:
                await asyncio.wait({projection}, timeout=max(0.0, end - time()))
            elif not is_woken:
                await self._wake_projector(run_id)
                is_woken = True
            if projection is None or (projection.done() and not projection.result()):
                await asyncio.sleep(min(pause, max(0.0, end - time())))
                pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
            still_pending = await self._find(Kind.RUN, run_id)
            if not still_pending or still_pending[0].projected >= arrived:
                return None
            [run] = still_pending
            if time() >= end:
                break
        return run.behind

    async def _find(self, kind: Kind, record_id: UUID) -> list[_PendingRun]:
        """Return the pending runs that a record may belong to. Usually there are none."""
        first = last = record_id
        if kind is not Kind.RUN:
            # Another id may begin like a trace id by chance: then that run is projected a little
            # earlier. Records that spans carry keep their own ids, so they are looked up.
            first, last = run_ids_like(record_id)
        parameters = {
            "project_id": self._project_id,
            "id": record_id,
            "first": first,
            "last": last,
            "limit": CANDIDATES,
        }
        with store_errors():
            async with reading(self._project) as connection:
                cursor = await connection.execute(_FIND[kind], parameters)
                runs = [_PendingRun(*row) for row in await cursor.fetchall()]
        # The id of a root plan is that of its run.
        return runs[:1] if runs and runs[0].root_plan_id == record_id else runs

    async def _wake_projector(self, root_plan_id: UUID) -> None:
        """Mark a run as due now, and notify the projectors.

        If the run has failed attempts or is being projected, its due time does not change.
        """
        now = None if self._projectors.clock is None else self._projectors.clock()
        with store_errors():
            await executed(self._project, [(_MAKE_DUE, [self._project_id, root_plan_id, now])])
            async with pooled_connection(self._project.pool) as connection:
                await connection.execute(WAKE_PROJECTORS)


def _finding(kind: Kind) -> str:
    """Return the query for the pending runs that a record may belong to.

    The query compares only primary keys, so it is fast.
    """
    may_be_its_run = "pending.root_plan_id >= %(first)s AND pending.root_plan_id <= %(last)s"
    if kind is not Kind.RUN:
        may_be_its_run += f""" OR pending.root_plan_id = ANY (ARRAY(
            SELECT root_plan_id FROM {TABLES[kind]}
            WHERE {RULES[kind].id_field} = %(id)s AND project_id = %(project_id)s))"""
    return f"""
SELECT pending.root_plan_id, pending.arrived, pending.spans, pending.since, pending.attempts,
    run.projected, run.projection_error
FROM pending_run AS pending
JOIN run ON run.project_id = pending.project_id AND run.root_plan_id = pending.root_plan_id
WHERE pending.project_id = %(project_id)s AND ({may_be_its_run}) AND run.deleted_at IS NULL
ORDER BY pending.root_plan_id <> %(id)s, pending.root_plan_id LIMIT %(limit)s"""


_FIND = {kind: _finding(kind) for kind in TABLES}

_MAKE_DUE = """
UPDATE pending_run SET due_at = now
FROM coalesce($3::timestamptz, statement_timestamp()) AS now
WHERE project_id = $1 AND root_plan_id = $2 AND attempts = 0 AND due_at > now
    AND due_at < 'infinity'"""
