"""Deleting runs in Postgres: on request, or because they exceed the project's limits.

A deletion has three steps (decision 20). The first commits a tombstone: from then on no reader sees
the run, and every write to it is rejected. The second deletes the rows of the run. The third marks
the tombstone as purged. If a process dies in between, any pruner continues.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tracer.clock import Clock
from tracer.errors import RecordNotFound
from tracer.records.project_settings import ProjectSettings
from tracer.storage.postgres.connection.citus import runs_by_shard
from tracer.storage.postgres.connection.pool import PoolConnection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, fetched, in_project
from tracer.storage.postgres.deletion import deletion_sql as sql
from tracer.storage.postgres.stats.rollups import roll_up_runs
from tracer.store import Erasure

MAX_ROWS = 200_000
"""The most rows that a transaction deletes, to bound its duration and memory."""

RUNS_AT_ONCE = 20
"""How many runs become tombstones before their rows are purged. This bounds the number of runs
whose rows readers must skip."""

TOMBSTONE_DAYS = 400
"""How long a tombstone rejects events that a spool still has."""

TOMBSTONES_AT_ONCE = 2_000

Settle = Callable[[], Awaitable[list[UUID]]]
"""Projects the runs of a project that are pending when it is called, and returns those that could
not be projected."""


@dataclass(frozen=True)
class PurgeResult:
    """The numbers of deleted rows."""

    runs: int = 0
    """The runs whose rows are all deleted."""
    records: int = 0
    """Plans, steps, rounds and tool calls."""
    spans: int = 0

    def __add__(self, other: PurgeResult) -> PurgeResult:
        return PurgeResult(
            self.runs + other.runs, self.records + other.records, self.spans + other.spans
        )


class PostgresDeletion:
    """Deletes runs of one project."""

    def __init__(
        self,
        project: ProjectPool,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        clock: Clock | None = None,
        max_rows: int = MAX_ROWS,
    ) -> None:
        """Connect to the database.

        Args:
            project: The project of the runs, with its connections.
            on_written: Called with the runs that were deleted, after the commit.
            clock: Returns the time; None: the database's own clock.
            max_rows: The most rows that one transaction deletes.
        """
        self._project = project
        self._on_written = on_written
        self._clock = clock
        self._max_rows = max_rows

    async def find_runs(self, subject: str | None, root_plan_id: UUID | None) -> list[UUID]:
        """Return the ids of a subject's runs, or of one run, that `erase_…` would delete.

        Args:
            subject: The subject, as it is stored; None: find the run.
            root_plan_id: The run.

        Raises:
            RecordNotFound: The run does not exist, or it was deleted before.
            StoreUnavailable: The database does not answer.
        """
        which = sql.OF_RUN if subject is None else sql.OF_SUBJECT
        values = {"subject": subject, "run": root_plan_id}
        with store_errors():
            runs = [each async for page in self._pages(which, values) for each in page]
        if subject is None and not runs:
            raise RecordNotFound("run", root_plan_id)
        return runs

    async def erase_run(self, root_plan_id: UUID) -> Erasure:
        """Delete a run with all its data, and count the rows that remain.

        Raises:
            RecordNotFound: The run does not exist, or it was deleted before.
            StoreUnavailable: The database does not answer. If the run was already deleted for
                readers, the next pruner deletes its rows.
        """
        with store_errors():
            deleted = await self._soft_delete([root_plan_id])
            if not deleted:
                raise RecordNotFound("run", root_plan_id)
            return await self._erase_rows(list(deleted))

    async def erase_subject(self, subject: str, settle: Settle | None = None) -> Erasure:
        """Delete every run of a subject and the state of their conversations.

        Args:
            subject: The subject, as it is stored.
            settle: Projects pending runs. Called first: the subject of a run is only known after
                its spans are projected. If it is None, nothing is projected, and the result names
                all pending runs.

        Returns:
            The numbers of deleted runs, records and spans, and how many rows remain.

        Raises:
            StoreUnavailable: The database does not answer. Calling this again continues.
        """
        values = {"subject": subject, "most": RUNS_AT_ONCE}
        sessions: set[str] = set()
        done = Erasure(unprojected=await (settle or self.pending_runs)())
        with store_errors():
            tombstones = await self._column(sql.FIND_TOMBSTONES_OF_SUBJECT, values)
            done += await self._erase_rows(tombstones)
            while runs := await self._column(sql.FIND_RUNS_OF_SUBJECT, values):
                deleted = await self._soft_delete(
                    runs, sql.OF_SUBJECT, values, with_shared_states=True
                )
                sessions.update(deleted.values())
                done += await self._erase_rows(list(deleted))
            values |= {"sessions": list(sessions)}
            left = await self._column(sql.COUNT_REMAINING_OF_SUBJECT, values)
            return done + Erasure(left=sum(left))

    async def _erase_rows(self, runs: list[UUID]) -> Erasure:
        # Erased runs must not remain in roll-ups either. For pruned runs, the job removes them.
        await roll_up_runs(self._project, runs)
        done = PurgeResult()
        async for result in self._purge(runs, sql.WAIT_FOR_CLAIM):
            done += result
        left = await self._column(sql.COUNT_REMAINING, {"runs": runs})
        return Erasure(len(runs), done.records, done.spans, sum(left))

    async def pending_runs(self) -> list[UUID]:
        """Return the runs of the project with spans that are not projected yet, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            return await self._column(sql.FIND_PENDING_RUNS, {"now": await self._now()})

    async def count(self, settings: ProjectSettings) -> int:
        """Return how many runs exceed the project's limits of age or number.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            conditions = await self._exceeding(settings)
            if not conditions:
                return 0
            which = " OR ".join(f"({condition})" for condition, _ in conditions)
            values = {name: value for _, each in conditions for name, value in each.items()}
            return sum(await self._column(sql.count_runs(f"({which})"), values))

    async def prune(self, settings: ProjectSettings) -> AsyncGenerator[PurgeResult, None]:
        """Delete the runs that exceed a project's limits, and continue interrupted deletions.

        Any number of callers may do this at once: each skips runs that another one has locked.

        Args:
            settings: The settings of the project.

        Yields:
            The result of each transaction that deleted rows, so that the caller can pause.

        Raises:
            StoreUnavailable: The database does not answer. Earlier deletions stay.
        """
        with store_errors():
            tombstones = await self._column(sql.FIND_TOMBSTONES, {})
            async for result in self._purge(tombstones, sql.CLAIM):
                yield result
            for which, values in await self._exceeding(settings):
                async for page in self._pages(which, values):
                    in_use = await self._named_sessions(page)
                    runs = [run_id for run_id in page if run_id not in in_use]
                    deleted = await self._soft_delete(runs, which, values, sql.SKIP_LOCKED)
                    async for result in self._purge(list(deleted), sql.CLAIM):
                        yield result

    async def forget_tombstones(self) -> int:
        """Delete some tombstones that are older than `TOMBSTONE_DAYS`, and return how many.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            before = await self._now() - timedelta(days=TOMBSTONE_DAYS)
            values = self._values({"before": before, "most": TOMBSTONES_AT_ONCE})
            async with in_project(self._project, seconds=None) as connection:
                cursor = await connection.execute(sql.DELETE_OLD_TOMBSTONES, values)
                return len(await cursor.fetchall())

    async def _exceeding(self, settings: ProjectSettings) -> list[tuple[str, dict[str, Any]]]:
        """Return the conditions for runs that exceed a project's limits, with their values."""
        conditions: list[tuple[str, dict[str, Any]]] = []
        now = await self._now()
        if settings.keep_days is not None:
            before = now - timedelta(days=settings.keep_days)
            conditions.append((sql.TOO_OLD, {"now": now, "before": before}))
        if settings.keep_runs is not None:
            last = await self._rows(sql.LAST_KEPT, {"keep_runs": settings.keep_runs})
            conditions += [
                (sql.TOO_MANY, {"now": now, "last_at": recorded_at, "last": run_id})
                for recorded_at, run_id in last
            ]
        return conditions

    async def _pages(self, which: str, values: dict[str, Any]) -> AsyncGenerator[list[UUID], None]:
        """Yield pages of the runs that meet a condition. Each run is yielded once."""
        place: dict[str, Any] = {"after_at": "-infinity", "after": UUID(int=0)}
        query = sql.find_runs(which)
        while page := await self._rows(query, {**values, **place, "most": RUNS_AT_ONCE}):
            yield [run_id for _, run_id in page]
            place["after_at"], place["after"] = page[-1]

    # --- Act 1 -----------------------------------------------------------------------------------

    async def _soft_delete(
        self,
        runs: Sequence[UUID],
        which: str = sql.ANY_RUN,
        values: dict[str, Any] | None = None,
        locking: str = sql.WAIT,
        *,
        with_shared_states: bool = False,
    ) -> dict[UUID, str]:
        """Make runs tombstones.

        Args:
            runs: The runs.
            which: A condition. Runs that no longer meet it are skipped.
            values: The values that the condition refers to.
            locking: Whether to wait for runs that others have locked, or to skip them.
            with_shared_states: Whether to delete the state of a conversation even if other runs
                belong to it.

        Returns:
            The id of each deleted run, with the id of its conversation.
        """
        deleted: dict[UUID, str] = {}
        log_sessions: set[UUID] = set()
        for group in await runs_by_shard(self._project.pool, runs):
            parameters = self._values({**(values or {}), "runs": group})
            async with in_project(self._project, seconds=None) as connection:
                locked = dict(await _fetched(connection, sql.lock_runs(locking), parameters))
                parameters["runs"] = list(locked)
                parameters["runs"] = await _column(connection, sql.soft_delete(which), parameters)
                if not parameters["runs"]:
                    continue
                for statement in sql.FORGET_WORK:
                    await connection.execute(statement, parameters)
                log_sessions.update(await _column(connection, sql.DELETE_SESSIONS, parameters))
                sessions = {
                    run: str(run) if locked[run] is None else locked[run]
                    for run in parameters["runs"]
                }
                await _delete_states(
                    connection, parameters, sessions, with_shared=with_shared_states
                )
            deleted |= sessions
        if deleted:
            self._on_written(deleted.keys())
        if unnamed := log_sessions - await self._named_sessions(log_sessions):
            deleted |= await self._soft_delete(sorted(unnamed), locking=locking)
        return deleted

    async def _named_sessions(self, sessions: Collection[UUID]) -> set[UUID]:
        """Return the sessions among `sessions` that some run still names.

        Each session is identified by the run that holds its log records.
        """
        if not sessions:
            return set()
        return set(await self._column(sql.FIND_NAMED_SESSIONS, {"sessions": list(sessions)}))

    # --- Acts 2 and 3 ----------------------------------------------------------------------------

    async def _purge(self, runs: Sequence[UUID], claim: str) -> AsyncGenerator[PurgeResult, None]:
        """Delete the rows of tombstones, and yield the result of each transaction.

        Args:
            runs: The runs. Those that are no tombstones are skipped.
            claim: Whether to wait for other processes that purge some of the runs, or to skip those
                runs.
        """
        for begin in range(0, len(runs), RUNS_AT_ONCE):
            some = sorted(runs[begin : begin + RUNS_AT_ONCE])
            for group in await runs_by_shard(self._project.pool, some):
                while result := await self._purge_some(group, claim):
                    yield result

    async def _purge_some(self, runs: list[UUID], claim: str) -> PurgeResult | None:
        """Delete rows of some tombstones, table by table, in one transaction.

        The transaction deletes at most `max_rows` rows. Only its last statement locks a row of
        `run`, so that writes to a deleted run are rejected without waiting for the purge.

        Args:
            runs: The runs.
            claim: Whether to wait for other processes, or to skip their runs.

        Returns:
            The numbers of deleted rows, with no runs if rows are left; None if no run is left.
        """
        parameters = self._values({"runs": runs})
        done, most = PurgeResult(), self._max_rows
        async with in_project(self._project, seconds=None) as connection:
            parameters["runs"] = [
                run_id for run_id, *_ in await _fetched(connection, claim, parameters)
            ]
            parameters["runs"] = await _column(connection, sql.FIND_CLAIMED, parameters)
            if not parameters["runs"]:
                return None
            for statement in sql.UNLINK:
                await connection.execute(statement, parameters)
            for statement in sql.DELETE_ROWS:
                values = {**parameters, "most": most}
                [(rows, records, spans)] = await _fetched(connection, statement, values)
                done += PurgeResult(0, records, spans)
                most -= rows
                if most <= 0:
                    return done
            await connection.execute(sql.CHECK_REFERENCES)
            await connection.execute(sql.FINISH_PURGE, parameters)
        return done + PurgeResult(len(parameters["runs"]))

    # --- Queries ---------------------------------------------------------------------------------

    def _values(self, values: dict[str, Any]) -> dict[str, Any]:
        now = self._clock and self._clock()
        return {"now": now, **values, "project_id": self._project.project_id}

    async def _rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await fetched(self._project, query, self._values(values))

    async def _column(self, query: str, values: dict[str, Any]) -> list[Any]:
        return [value for (value,) in await self._rows(query, values)]

    async def _now(self) -> datetime:
        if self._clock is not None:
            return self._clock()
        [(now,)] = await self._rows("SELECT statement_timestamp()", {})
        assert isinstance(now, datetime)
        return now


async def _fetched(
    connection: PoolConnection, query: str, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, values)).fetchall()


async def _column(connection: PoolConnection, query: str, values: dict[str, Any]) -> list[Any]:
    return [value for (value,) in await _fetched(connection, query, values)]


async def _delete_states(
    connection: PoolConnection,
    values: dict[str, Any],
    sessions: dict[UUID, str],
    *,
    with_shared: bool,
) -> None:
    """Delete the states of the conversations of deleted runs.

    Args:
        connection: In the transaction that deletes the runs.
        values: The parameters of the SQL statements.
        sessions: The id of each run's conversation, by run.
        with_shared: Whether to delete states of conversations to which other runs belong.
    """
    values = {**values, "sessions": list(set(sessions.values())), "named": []}
    if not await _fetched(connection, sql.LOCK_STATES, values):
        return
    if not with_shared:
        for session in values["sessions"]:
            with suppress(ValueError):
                values["named"].append(UUID(session))
        shared = await _fetched(connection, sql.FIND_SESSIONS_IN_USE, values)
        unshared = set(values["sessions"]).difference(session for (session,) in shared)
        values["sessions"] = list(unshared)
    await connection.execute(sql.DELETE_STATES, values)
