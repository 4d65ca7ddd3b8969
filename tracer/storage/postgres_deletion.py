"""Deleting runs in Postgres: on request, or because their time is over.

A run is buried in one transaction, and gone for everybody from then on. What lies below it is swept
in transactions of a bounded size, by whoever comes first: see decision 20.
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
from tracer.project_settings import ProjectSettings
from tracer.records import RECORDS
from tracer.storage import burial_statements as sql
from tracer.storage.citus import is_spread_by
from tracer.storage.engine import PoolConnection, store_errors
from tracer.storage.project_pool import ProjectPool, in_project, reading
from tracer.storage.rollups import roll_up_runs
from tracer.storage.tables import IS_BURIED, TABLES
from tracer.store import Erasure

ROWS_AT_ONCE = 2_000
"""How many rows a transaction deletes, at most: a late writer of the run waits for it."""

RUNS_AT_ONCE = 20
"""How many runs are buried and swept together."""

TOMBSTONE_DAYS = 400
"""How long a tombstone refuses what a spool kept."""

Settle = Callable[[], Awaitable[list[UUID]]]
"""Projects the runs of a project that are pending when it is called, and returns those that could
not be projected."""

_RECORD_TABLES = {TABLES[kind] for kind in RECORDS}


@dataclass(frozen=True)
class Swept:
    """What one transaction deleted."""

    runs: int = 0
    """Of how many runs nothing is left now."""
    records: int = 0
    """Plans, steps, rounds and tool calls."""
    spans: int = 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(self.runs + other.runs, self.records + other.records, self.spans + other.spans)


class PostgresDeletion:
    """Deletes runs of one project."""

    def __init__(
        self,
        project: ProjectPool,
        on_written: Callable[[Collection[UUID]], None] = lambda _: None,
        clock: Clock | None = None,
        rows_at_once: int = ROWS_AT_ONCE,
    ) -> None:
        """Connect to the database.

        Args:
            project: Whose runs are deleted, and the connections.
            on_written: Is told which runs are gone, after the commit.
            clock: What time it is; None: the database's own clock.
            rows_at_once: How many rows a transaction deletes at most.
        """
        self._project = project
        self._given = {"project_id": project.project_id}
        self._on_written = on_written
        self._clock = clock
        self._rows_at_once = rows_at_once

    async def erase_run(self, root_plan_id: UUID) -> Erasure:
        """Delete a run with everything below it, and count what is left of it.

        Raises:
            RecordNotFound: There is no such run, or it was deleted before.
            StoreUnavailable: The database does not answer. What was done is done, and where the
                run is gone already, whoever prunes next deletes the rest.
        """
        with store_errors():
            buried = await self._bury(sql.THE_RUN, {"run": root_plan_id})
            if not buried:
                raise RecordNotFound("run", root_plan_id)
            return await self._erase(buried)

    async def erase_subject(self, subject: str, settle: Settle | None = None) -> Erasure:
        """Delete every run of a subject and the state of their conversations; count what is left.

        Args:
            subject: The subject, as it is stored.
            settle: Called first, because only records name the subject of a run. If it is None, the
                answer names all runs that are pending.

        Raises:
            StoreUnavailable: As above. Erasing again goes on with it.
        """
        given = {"subject": subject}
        sessions: set[str] = set()
        done = Erasure(unprojected=await (settle or self.pending_runs)())
        with store_errors():
            while buried := await self._bury(
                sql.OF_SUBJECT, given, sql.BY_SUBJECT, with_sessions=True
            ):
                sessions.update(_session_ids(buried))
                done += await self._erase(buried)
            values = {**self._given, **given, "sessions": list(sessions)}
            return done + Erasure(left=await self._sum(sql.COUNT_LEFT_OF_SUBJECT, values))

    async def _erase(self, buried: dict[UUID, str | None]) -> Erasure:
        given = {**self._given, "runs": list(buried)}
        await roll_up_runs(self._project, buried)
        done = Swept()
        async for swept in self._swept(sql.WAITING, list(buried)):
            done += swept
        left = await self._sum(sql.COUNT_LEFT, given)
        return Erasure(len(buried), done.records, done.spans, left)

    async def pending_runs(self) -> list[UUID]:
        """Return the runs of the project with spans that are not projected yet, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with reading(self._project) as connection:
                given = {**self._given, "now": await self._now(connection)}
                found = await (await connection.execute(sql.PENDING_RUNS, given)).fetchall()
        return [run_id for (run_id,) in found]

    async def count(self, settings: ProjectSettings) -> int:
        """Return how many runs are older or more than a project keeps.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            over = await self._over(settings)
            if not over:
                return 0
            which = " OR ".join(f"({condition})" for condition, _ in over)
            given = {name: value for _, values in over for name, value in values.items()}
            return await self._sum(f"{sql.COUNT} AND ({which})", {**self._given, **given})

    async def prune(self, settings: ProjectSettings) -> AsyncGenerator[Swept, None]:
        """Delete the runs that are older or more than a project keeps, and what others left.

        Any number of callers may do this at once; what others work at is passed over.

        Args:
            settings: What the project keeps.

        Yields:
            What each transaction deleted, after it: whoever asks may rest.

        Raises:
            StoreUnavailable: The database does not answer; what was done is done.
        """
        with store_errors():
            async for swept in self._swept(sql.PASSING_OVER):
                yield swept
            for which, given in await self._over(settings):
                while await self._bury(which, given, sql.OLDEST_FIRST, sql.PASSING_OVER):
                    async for swept in self._swept(sql.PASSING_OVER):
                        yield swept

    async def forget_tombstones(self) -> int:
        """Delete some of the tombstones that are too old, and return how many.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with in_project(self._project, seconds=None) as connection:
                before = await self._now(connection) - timedelta(days=TOMBSTONE_DAYS)
                given = {**self._given, "before": before, "most": ROWS_AT_ONCE}
                is_spread = await is_spread_by(connection)
                forgetting = sql.forgetting(sql.UNLOCKED if is_spread else sql.PASSING_OVER)
                return len(await (await connection.execute(forgetting, given)).fetchall())

    async def _over(self, settings: ProjectSettings) -> list[tuple[str, dict[str, Any]]]:
        """Return which runs are older or more than a project keeps: conditions and their values."""
        found: list[tuple[str, dict[str, Any]]] = []
        async with reading(self._project) as connection:
            now = await self._now(connection)
            if settings.keep_days is not None:
                before = now - timedelta(days=settings.keep_days)
                found.append((sql.TOO_OLD, {"now": now, "before": before}))
            if settings.keep_runs is not None:
                given = {**self._given, "keep_runs": settings.keep_runs}
                cursor = await connection.execute(sql.LAST_KEPT, given)
                if row := await cursor.fetchone():
                    found.append((sql.TOO_MANY, {"now": now, "last_at": row[0], "last": row[1]}))
        return found

    async def _bury(
        self,
        which: str,
        given: dict[str, Any],
        order: str = sql.BY_ID,
        locking: str = sql.WAITING,
        *,
        with_sessions: bool = False,
    ) -> dict[UUID, str | None]:
        """Bury some runs, and return them with their sessions.

        Args:
            which: The condition that holds for them.
            given: The values that it names.
            order: Which are taken first.
            locking: Whether to wait for those that others have locked.
            with_sessions: Whether to delete the states of their conversations, too.
        """
        async with in_project(self._project, seconds=None) as connection:
            values = {"now": await self._now(connection), "most": RUNS_AT_ONCE}
            values |= {**self._given, **given}
            locked = await self._locked(connection, which, order, locking, values)
            values |= {"runs": list(locked)}
            burying = sql.burying(which)
            buried = dict(await (await connection.execute(burying, values)).fetchall())
            if buried:
                values |= {"runs": list(buried)}
                await connection.execute(sql.LEAVE_LEASES, values)
                await connection.execute(sql.FORGET_PENDING, values)
                if with_sessions:
                    values |= {"sessions": _session_ids(buried)}
                    await connection.execute(sql.LOCK_SESSIONS, values)
                    await connection.execute(sql.FORGET_SESSIONS, values)
        if buried:
            self._on_written(buried.keys())
        return buried

    async def _swept(
        self, locking: str, runs: list[UUID] | None = None
    ) -> AsyncGenerator[Swept, None]:
        cut: set[UUID] = set()
        while (swept := await self._sweep(locking, runs, cut)) is not None:
            yield swept

    async def _sweep(self, locking: str, runs: list[UUID] | None, cut: set[UUID]) -> Swept | None:
        """Delete some of what lies below buried runs; None where there are none.

        Args:
            locking: Whether to wait for those that others have locked.
            runs: These alone; None: whichever.
            cut: Those without circles, as far as is known; more are added. Nobody makes new ones.
        """
        which = IS_BURIED if runs is None else sql.among(IS_BURIED)
        async with in_project(self._project, seconds=None) as connection:
            given: dict[str, Any] = {**self._given, "runs": runs, "most": RUNS_AT_ONCE}
            taken = await self._locked(connection, which, sql.BY_ID, locking, given)
            if not taken:
                return None
            given |= {"runs": list(taken), "most": self._rows_at_once}
            if not cut.issuperset(taken) and await _has_circles(connection, given):
                return Swept()
            cut.update(taken)
            records, spans = await _deleted(connection, given)
            if given["most"] <= 0:
                return Swept(0, records, spans)
            given |= {"now": await self._now(connection), "sessions": _session_ids(taken)}
            for statement in (sql.LOCK_SESSIONS, sql.CLOSE):
                await connection.execute(statement, given)
            given |= {"named": _run_ids(given["sessions"])}
            left = await (await connection.execute(sql.LEFT_SESSIONS, given)).fetchall()
            gone = set(given["sessions"]).difference(session for (session,) in left)
            await connection.execute(sql.FORGET_SESSIONS, given | {"sessions": list(gone)})
            return Swept(len(taken), records, spans)

    async def _locked(
        self,
        connection: PoolConnection,
        which: str,
        order: str,
        locking: str,
        given: dict[str, Any],
    ) -> dict[UUID, str | None]:
        """Lock some runs, and return them with their sessions; on Citus the first that can be."""
        if not await is_spread_by(connection):
            choosing = sql.choosing(which, order, locking)
            return dict(await (await connection.execute(choosing, given)).fetchall())
        finding = sql.choosing(which, order, sql.UNLOCKED)
        choosing = sql.choosing(sql.among("true"), order, locking)
        # Somebody else may have been done with it before it was locked.
        finding_again = sql.choosing(sql.among(which), order, sql.UNLOCKED)
        for run_id, _ in await (await connection.execute(finding, given)).fetchall():
            one = {**given, "runs": [run_id]}
            if await (await connection.execute(choosing, one)).fetchall():
                cursor = await connection.execute(finding_again, one)
                if locked := await cursor.fetchall():
                    return dict(locked)
        return {}

    async def _sum(self, query: str, given: dict[str, Any]) -> int:
        async with reading(self._project) as connection:
            return sum(
                count for (count,) in await (await connection.execute(query, given)).fetchall()
            )

    async def _now(self, connection: PoolConnection) -> datetime:
        if self._clock is not None:
            return self._clock()
        cursor = await connection.execute("SELECT statement_timestamp()")
        [(now,)] = await cursor.fetchall()
        assert isinstance(now, datetime)
        return now


async def _has_circles(connection: PoolConnection, given: dict[str, Any]) -> bool:
    """Cut circles as long as `most` is more than 0, which is lowered; return if some are left."""
    routed = sql.on_its_shard if await is_spread_by(connection) else str
    for cut in sql.CUTS:
        if given["most"] > 0:
            changed, _ = await _counted(connection, sql.counting(routed(cut)), given)
            given["most"] -= changed
    return bool(given["most"] <= 0)


async def _deleted(connection: PoolConnection, given: dict[str, Any]) -> tuple[int, int]:
    """Delete rows as long as `most` is more than 0, which is lowered.

    Returns:
        How many records and how many spans were deleted.
    """
    routed = sql.on_its_shard if await is_spread_by(connection) else str
    records = spans = 0
    for table, sweep in sql.SWEEPS.items():
        if given["most"] > 0:
            counting = sql.counting(routed(sweep), sql.SPANS_IN.get(table, "0"))
            rows, spans_of_rows = await _counted(connection, counting, given)
            given["most"] -= rows * (sql.BLOCK_ROWS if table == "otel_block" else 1)
            records += rows if table in _RECORD_TABLES else 0
            spans += spans_of_rows
    return records, spans


async def _counted(
    connection: PoolConnection, counting: str, given: dict[str, Any]
) -> tuple[int, int]:
    """Execute a statement of `counting`, and return its rows and spans."""
    [(rows, spans)] = await (await connection.execute(counting, given)).fetchall()
    return rows, spans


def _run_ids(sessions: Sequence[str]) -> list[UUID]:
    """Return the runs whose ids stand for conversations."""
    found = []
    for session in sessions:
        with suppress(ValueError):
            found.append(UUID(session))
    return found


def _session_ids(runs: dict[UUID, str | None]) -> list[str]:
    """Return the sessions of runs; a run without one has its own id for it."""
    return [str(run_id) if session is None else session for run_id, session in runs.items()]
