"""Deletion of runs, of a subject's data and of projects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tracer.clock import Clock
from tracer.errors import RecordNotFound
from tracer.records import Kind
from tracer.records.access import ProjectSettings
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres.citus import is_spread_by, runs_by_shard
from tracer.storage.postgres.conversations import CONVERSATIONS_LOCK_KEY, key_of
from tracer.storage.postgres.pool import PoolConnection, store_errors
from tracer.storage.postgres.rollups import roll_up_runs
from tracer.storage.postgres.run_tables import abandoned_at
from tracer.storage.postgres.session import ProjectPool, fetched, in_project
from tracer.storage.postgres.tables import (
    ALWAYS,
    IS_HEAD,
    IS_TOMBSTONE,
    METADATA,
    RUN_NOT_DELETED,
    START,
    TABLES,
    is_one_of,
    is_text,
)
from tracer.store import Erasure

# --- The SQL of deletion: which runs are deleted, tombstones, and the purge of their rows.
#
# Every statement takes `project_id`, and most take the affected runs as `runs`: on Citus, runs of
# one shard. `now` is the current time, or null for the database's own clock.

_OF_PROJECT = "project_id = %(project_id)s"
_OF_RUNS = f"{_OF_PROJECT} AND root_plan_id = ANY(%(runs)s)"

# --- Which runs ----------------------------------------------------------------------------------

ANY_RUN = "true"
OF_RUN = "root_plan_id = %(run)s"
OF_SUBJECT = is_text("subject", "subject")
OF_SESSION = is_text("session_id", "session")

_HEAD = "coalesce(head_id, root_plan_id)"

_IS_OPEN = "finished_at IS NULL AND status < 'cancelled'"

# An end in the future comes from a wrong clock.
_END = f"""CASE WHEN finished_at <= %(now)s THEN finished_at
    ELSE coalesce({abandoned_at("run")}, recorded_at) END"""

# A run with pending spans has not ended. If its projection failed for good, its records decide:
# otherwise it would never be deleted.
_LIVES = f"""EXISTS (
    SELECT FROM pending_run AS pending
    WHERE pending.root_plan_id = run.root_plan_id AND pending.project_id = run.project_id
        AND pending.due_at < 'infinity'
) OR {_IS_OPEN} AND EXISTS (
    SELECT FROM recorder_run AS part
    WHERE part.root_plan_id = run.root_plan_id AND part.project_id = run.project_id
        AND part.abandoned_at IS NULL)"""

TOO_OLD = f"recorded_at < %(before)s AND {_END} < %(before)s AND NOT ({_LIVES})"
"""The condition for runs that were stored and ended before the time `before`."""

TOO_MANY = f"""{IS_HEAD} AND (recorded_at, root_plan_id) <= (%(last_at)s, %(last)s)
    AND whole_status IS DISTINCT FROM 'running' AND NOT ({_LIVES})"""
"""The condition for pieces of work in excess of the number that a project keeps, by their first
runs. `LAST_KEPT` finds `last_at` and `last`."""

LAST_KEPT = f"""
SELECT recorded_at, root_plan_id FROM run WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {IS_HEAD}
ORDER BY recorded_at DESC, root_plan_id DESC LIMIT 1 OFFSET %(keep_runs)s"""
"""Finds the newest piece of work in excess of `keep_runs`."""


def find_runs(which: str) -> str:
    """Return the query for the next `most` runs after (`after_at`, `after`), oldest first.

    Each row also has the first run of the piece of work.

    The query locks nothing, so any number of pruners can find the same runs.

    Args:
        which: The condition that the runs meet.
    """
    return f"""
    SELECT root_plan_id, {_HEAD}, recorded_at FROM run
    WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {which}
        AND (recorded_at, root_plan_id) > (%(after_at)s, %(after)s)
    ORDER BY recorded_at, root_plan_id LIMIT %(most)s"""


FIND_YOUNGER_WORK = f"""
SELECT {_HEAD} FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND NOT ({TOO_OLD})
    AND (root_plan_id = ANY(%(heads)s) OR head_id = ANY(%(heads)s))"""
"""Finds those pieces of work `heads` that have a run that is not too old."""


def find_some(which: str) -> str:
    """Return the query for at most `most` runs, in any order, and the first runs of their work.

    Args:
        which: The condition that the runs meet.
    """
    return f"""
    SELECT root_plan_id, {_HEAD} FROM run WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {which}
    LIMIT %(most)s"""


FIND_LATER_PARTS = f"""
SELECT root_plan_id, subject IS NULL FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND head_id = ANY(%(heads)s)
ORDER BY {START} DESC, root_plan_id DESC"""
"""Finds the runs that continue the runs `heads`, latest first, and whether they have no subject."""

FIND_PARTS_OF_OTHERS = f"""
SELECT root_plan_id FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND subject IS NOT NULL AND NOT ({OF_SUBJECT})
    AND {_HEAD} = ANY(%(heads)s)
ORDER BY root_plan_id"""
"""Finds the runs of other subjects in the pieces of work `heads`."""

FIND_TOMBSTONES = f"""
SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND {IS_TOMBSTONE} ORDER BY root_plan_id"""
"""Finds the deleted runs that may still have rows."""

FIND_TOMBSTONES_OF_SUBJECT = f"""
SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND {IS_TOMBSTONE} AND {OF_SUBJECT}"""

FIND_PENDING_RUNS = f"""
SELECT root_plan_id FROM pending_run WHERE {_OF_PROJECT} AND since <= %(now)s
ORDER BY root_plan_id"""
"""Finds the runs whose records lack spans that arrived by `now`."""

MARK_ERASED = """
UPDATE project SET erased_at = statement_timestamp() WHERE project_id = %(project_id)s"""
"""Makes search indexes be built again, because their files have words of deleted runs."""

# --- Act 1: the tombstone ------------------------------------------------------------------------

WAIT = ""
SKIP_LOCKED = "SKIP LOCKED"


def lock_runs(locking: str) -> str:
    """Return the statement that locks the runs that are not deleted, in the order of their ids.

    It returns their ids, their sessions, and the first runs of their work.

    Args:
        locking: `WAIT` for other transactions that have locked a run, or `SKIP_LOCKED`.
    """
    return f"""
    SELECT root_plan_id, session_id, {_HEAD} FROM run WHERE {_OF_RUNS} AND {RUN_NOT_DELETED}
    ORDER BY root_plan_id FOR NO KEY UPDATE {locking}"""


def check_runs(which: str) -> str:
    """Return the query that checks locked runs again, and returns the ids of those to delete.

    An event may have changed a run before it was locked, and only a statement after the lock sees
    the change. The update itself cannot check: Citus updates by no condition that reads other
    tables behind row-level security.

    Args:
        which: The condition for deleting a run.
    """
    return f"SELECT root_plan_id FROM run WHERE {_OF_RUNS} AND {which} ORDER BY root_plan_id"


SOFT_DELETE = f"""
    UPDATE run SET deleted_at = %(now)s, revision = revision + 1,
    changed_at = statement_timestamp(),
    status = 'unknown', reason = NULL, started_at = NULL, finished_at = NULL, recorder_id = NULL,
    title = NULL, agent_name = NULL, session_id = NULL, tags = NULL, masked = NULL,
    traceparent = NULL, cancel_requested_at = NULL, run_metadata = NULL,
    service_name = NULL, service_version = NULL, deployment_environment = NULL, input_tokens = 0,
    output_tokens = 0, cost_usd = 0, unpriced_calls = 0, unread_spans = 0,
    refused_spans = 0, span_count = 0, span_records = NULL,
    unread_scopes = NULL, follows_calls = NULL, follows_runs = NULL, follows_keys = NULL,
    work_keys = NULL, is_bare = false, is_inside = false, whole_status = NULL,
    beginning_deleted = false, prompt_sequence = NULL,
    prompt_number = NULL, open_at = NULL, left_open_at = NULL, tool_calls = 0,
    failed_calls = 0, projected = 0, projection_version = 0, projection_error = NULL,
    next_projection_at = NULL, span_bytes = 0, settle_at = NULL
    WHERE {_OF_RUNS}"""
"""Make locked runs tombstones.

The subject remains until the rows are purged, so that a repeated deletion of the subject finds the
run.
"""

FORGET_WORK = tuple(
    f"DELETE FROM {table} WHERE {_OF_RUNS}" for table in ("recorder_run", "pending_run")
)
"""Make the reaper and the projectors skip deleted runs."""

DELETE_SESSIONS = f"DELETE FROM otel_session WHERE {_OF_RUNS} RETURNING session_run_id"
"""Removes the links from deleted runs to the sessions that their log records name. Returns the runs
that store the log records of these sessions."""

FIND_NAMED_SESSIONS = f"""
SELECT DISTINCT session_run_id FROM otel_session
WHERE {_OF_PROJECT} AND session_run_id = ANY(%(sessions)s)"""
"""Finds which of `sessions` are still named by a run. The others can be deleted.

Each session is identified by the run that stores its log records.
"""

# Comparing names can use the index behind row-level security. Names have the first 63 bytes.
_OF_SESSIONS = f"{_OF_PROJECT} AND {is_one_of('session', '%(sessions)s')}"

FIND_STATES = f"SELECT session_id FROM session_state WHERE {_OF_SESSIONS} ORDER BY session_id"

LOCK_STATES = f"""
SELECT FROM session_state WHERE {_OF_PROJECT} AND session_id = ANY(%(states)s)
ORDER BY session_id FOR UPDATE"""
"""Locks the states of conversations. If the last two runs of a conversation are deleted at the same
time, the second deletion waits here and then sees that no run is left."""

# A run without a session has its own id as its session.
FIND_SESSIONS_IN_USE = f"""
SELECT session_id FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND {is_one_of("session_id", "%(sessions)s")}
UNION ALL
SELECT root_plan_id::text FROM run
WHERE {_OF_PROJECT} AND {RUN_NOT_DELETED} AND root_plan_id = ANY(%(named)s)"""
"""Finds which of the conversations `sessions` still have a run.

A run without a session id is a conversation of its own, identified by the run's id. `named`
contains those ids in `sessions` that are UUIDs, and so may be ids of runs.
"""

DELETE_STATES = f"DELETE FROM session_state WHERE {_OF_SESSIONS}"

LOCK_CONVERSATIONS = f"SELECT pg_advisory_xact_lock({CONVERSATIONS_LOCK_KEY % '%(project_id)s'})"
"""Waits until no linker computes conversations from data that was committed before."""

DELETE_CONVERSATIONS = f"""
DELETE FROM conversation WHERE {_OF_PROJECT} AND session_key = ANY(%(conversations)s)"""

FIND_SESSIONS_OF_HEADS = f"""
SELECT session_id FROM run
WHERE {_OF_PROJECT} AND root_plan_id = ANY(%(heads)s) AND session_id IS NOT NULL"""

# --- Act 2: the rows -----------------------------------------------------------------------------

_PURGE_LOCK_KEY = "hashtextextended('purge ' || root_plan_id::text, %(project_id)s)"
_BATCH = "unnest(%(runs)s::uuid[]) AS batch (root_plan_id)"

# Locks of the rows of `run` would make writers of deleted runs wait.
CLAIM = f"SELECT root_plan_id FROM {_BATCH} WHERE pg_try_advisory_xact_lock({_PURGE_LOCK_KEY})"
"""Claims the purge of runs until the end of the transaction; skips runs that are claimed."""

WAIT_FOR_CLAIM = f"SELECT root_plan_id, pg_advisory_xact_lock({_PURGE_LOCK_KEY}) FROM {_BATCH}"
"""Claims the purge of runs in the given order; waits for another process that has claimed one."""

FIND_CLAIMED = f"""
SELECT root_plan_id FROM run WHERE {_OF_RUNS} AND {IS_TOMBSTONE} ORDER BY root_plan_id"""
"""Finds the tombstones among the claimed runs. Only tombstones may be purged."""


def _of_runs(table: str) -> str:
    """Return the condition for a table's rows of some runs, written so that the index is used."""
    return f"{_OF_RUNS} AND {ALWAYS}" if table in TABLES.values() else _OF_RUNS


_BELOW_RUNS = tuple(
    table.name
    for table in reversed(METADATA.sorted_tables)
    if "root_plan_id" in table.columns and table.name != "run"
)

PURGED_TABLES = tuple(each for each in _BELOW_RUNS if each not in ("run_group", "run_part_of_day"))
"""The tables whose rows the purge deletes: every table with rows of runs, except the roll-ups.

`tracer.storage.postgres.rollups` deletes the rows of these two, and takes the run out of
the sums in the same transaction. After `UNLINK` has cut circular references, no row refers to a
table that comes earlier in this order.
"""

_RECORD_TABLES = {TABLES[kind] for kind in RECORDS}


def _counted(table: str, delete: str) -> str:
    """Return a statement that deletes rows, and returns the numbers of rows, records and spans."""
    records = "count(*)" if table in _RECORD_TABLES else "0::bigint"
    spans = "spans" if table == "otel_block" else "0"
    return (
        f"WITH deleted AS ({delete} RETURNING {spans} AS spans)"
        f" SELECT count(*), {records}, coalesce(sum(spans), 0)::bigint FROM deleted"
    )


UNLINK = tuple(
    f"UPDATE {TABLES[kind]} SET {changes} WHERE {_of_runs(TABLES[kind])} AND {is_linked}"
    for kind, changes, is_linked in (
        (
            Kind.PLAN,
            # A plan without links must not have started.
            "parent_plan_id = NULL, tool_call_id = NULL, opened_by_step_id = NULL,"
            " started_at = NULL",
            "num_nonnulls(parent_plan_id, tool_call_id, opened_by_step_id) > 0",
        ),
        (Kind.TOOL_CALL, "parent_tool_call_id = NULL", "parent_tool_call_id IS NOT NULL"),
    )
)
"""Cut the references that form circles. Afterwards the rows can be deleted in several transactions
without broken references in between."""

# `ctid = ANY (…)` would be compared one by one if the planner chose another index.
DELETE_ROWS = tuple(
    _counted(
        table,
        f"DELETE FROM {table} WHERE {_OF_RUNS} AND ctid IN ("
        f"SELECT ctid FROM {table} WHERE {_of_runs(table)} LIMIT %(most)s)",
    )
    for table in PURGED_TABLES
)
"""Statements that each delete at most `most` rows of one table. Execute them in this order, after
`UNLINK`."""

# --- Act 3: the end ------------------------------------------------------------------------------

CHECK_REFERENCES = "SET CONSTRAINTS ALL IMMEDIATE"
"""Comes before `FINISH_PURGE`, so that the runs are locked only after the slow checks."""

FINISH_PURGE = f"""
UPDATE run SET swept_at = %(now)s, subject = NULL
WHERE {_OF_RUNS} AND {IS_TOMBSTONE}"""

DELETE_OLD_TOMBSTONES = f"""
DELETE FROM run WHERE {_OF_PROJECT} AND root_plan_id = ANY(ARRAY(
    SELECT root_plan_id FROM run WHERE {_OF_PROJECT} AND swept_at < %(before)s
    ORDER BY swept_at LIMIT %(most)s))
RETURNING root_plan_id"""

COUNT_REMAINING = " UNION ALL ".join(
    (
        *(f"SELECT count(*) FROM {table} WHERE {_of_runs(table)}" for table in _BELOW_RUNS),
        f"SELECT count(*) FROM run WHERE {_OF_RUNS} AND swept_at IS NULL",
    )
)
"""Counts the remaining rows of the deleted runs `runs` in each table."""


def count_remaining(which: str) -> str:
    """Return the query that counts what remains after the deletion of runs.

    These are runs that meet the condition `which`, and the states of the sessions `sessions`.
    """
    return f"""
    SELECT count(*) FROM run WHERE {_OF_PROJECT} AND {which}
    UNION ALL
    SELECT count(*) FROM session_state WHERE {_OF_SESSIONS}"""


# --- Deleting runs in Postgres: on request, or because they exceed the project's limits.
#
# A deletion has three steps (decision 20). The first commits a tombstone: from then on no reader
# sees the run, and every write to it is rejected. The second deletes the rows of the run. The third
# marks the tombstone as purged. If a process dies in between, any pruner continues.

MAX_ROWS = 200_000
"""The most rows that a transaction deletes, to bound its duration and memory."""

RUNS_AT_ONCE = 20
"""How many runs become tombstones before their rows are purged. This bounds the number of runs
whose rows readers must skip."""

PAGE_RUNS = 500
"""How many runs to delete are found together."""

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
        which = OF_RUN if subject is None else OF_SUBJECT
        values = {"subject": subject, "run": root_plan_id}
        with store_errors():
            runs = [each async for page in self._pages(which, values) for each in page]
            if subject is None and not runs:
                raise RecordNotFound("run", root_plan_id)
            parts = await self._later_parts(runs)
        return [*runs, *(run_id for run_id, is_free in parts if is_free or subject is None)]

    async def erase_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> Erasure:
        """Delete a run with all its data, and count the rows that remain.

        Args:
            root_plan_id: The run.
            all_parts: Whether to delete the runs that continue it, too, if it is the first one of a
                piece of work.

        Raises:
            RecordNotFound: The run does not exist, or it was deleted before.
            StoreUnavailable: The database does not answer. If the run was already deleted for
                readers, the next pruner deletes its rows.
        """
        with store_errors():
            parts = await self._later_parts([root_plan_id]) if all_parts else []
            # The parts first: if this is interrupted, the first run is still there to repeat it.
            done = await self._erase_parts([run_id for run_id, _ in parts])
            deleted = await self._soft_delete([root_plan_id])
            if not deleted:
                raise RecordNotFound("run", root_plan_id)
            done += await self._erase_rows(list(deleted))
            await self._mark_erased()
            return done

    async def _later_parts(self, heads: Sequence[UUID]) -> list[tuple[UUID, bool]]:
        return await self._fetch_all(FIND_LATER_PARTS, {"heads": list(heads)})

    async def _erase_parts(self, runs: Sequence[UUID]) -> Erasure:
        """Delete runs a few at a time, in the given order."""
        done = Erasure()
        for some in _in_groups(runs):
            done += await self._erase_rows(list(await self._soft_delete(some)))
        return done

    async def erase_subject(self, subject: str, settle: Settle | None = None) -> Erasure:
        """Delete every run of a subject and the state of their conversations.

        Runs without a subject that continue a run of the subject are deleted, too.

        Args:
            subject: The subject, as it is stored.
            settle: Projects and links pending runs. Called first: the subject of a run is only
                known after its spans are projected. If it is None, nothing is projected, and the
                result names all pending runs.

        Returns:
            The numbers of deleted runs, records and spans, and how many rows remain.

        Raises:
            StoreUnavailable: The database does not answer. Calling this again continues.
        """
        return await self._erase_all(OF_SUBJECT, {"subject": subject}, settle)

    async def erase_session(self, session_id: str, settle: Settle | None = None) -> Erasure:
        """Delete every run of a session, the runs that continue them, and the session's states.

        Args:
            session_id: The session, as it is stored.
            settle: As for `erase_subject`.

        Raises:
            StoreUnavailable: The database does not answer. Calling this again continues.
        """
        return await self._erase_all(OF_SESSION, {"session": session_id}, settle)

    async def _erase_all(
        self, which: str, criterion: dict[str, Any], settle: Settle | None
    ) -> Erasure:
        is_subject = which is OF_SUBJECT
        values = {**criterion, "most": RUNS_AT_ONCE}
        sessions: set[str] = {*criterion.values()} if not is_subject else set()
        of_others: set[UUID] = set()
        done = Erasure(unprojected=await (settle or self.pending_runs)())
        with store_errors():
            if is_subject:
                tombstones = await self._column(FIND_TOMBSTONES_OF_SUBJECT, values)
                done += await self._erase_rows(tombstones)
            while found := dict(await self._fetch_all(find_some(which), values)):
                if is_subject:
                    # Before the deletion, after which the linker gives these runs another head.
                    of_work = {**values, "heads": list(found.values())}
                    of_others.update(await self._column(FIND_PARTS_OF_OTHERS, of_work))
                parts = await self._later_parts(list(found))
                done += await self._erase_parts(
                    [run_id for run_id, is_free in parts if is_free or not is_subject]
                )
                deleted = await self._soft_delete(
                    list(found), which, values, with_shared_states=True
                )
                sessions.update(deleted.values())
                done += await self._erase_rows(list(deleted))
            values["sessions"] = list(sessions)
            left = await self._column(count_remaining(which), values)
            await self._mark_erased()
            return done + Erasure(left=sum(left), parts_of_others=sorted(of_others))

    async def _mark_erased(self) -> None:
        async with in_project(self._project, seconds=None) as connection:
            await connection.execute(MARK_ERASED, self._values({}))

    async def _erase_rows(self, runs: list[UUID]) -> Erasure:
        if not runs:
            return Erasure()
        # Erased runs must not remain in roll-ups either. For pruned runs, the job removes them.
        await roll_up_runs(self._project, runs)
        done = PurgeResult()
        async for result in self._purge(runs, WAIT_FOR_CLAIM):
            done += result
        left = await self._column(COUNT_REMAINING, {"runs": runs})
        return Erasure(len(runs), done.records, done.spans, sum(left))

    async def pending_runs(self) -> list[UUID]:
        """Return the runs of the project with spans that are not projected yet, by id.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            return await self._column(FIND_PENDING_RUNS, {"now": await self._now()})

    async def count(self, settings: ProjectSettings) -> int:
        """Return how many runs exceed the project's limits of age or number.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            return len({run async for runs, *_ in self._exceeding(settings) for run in runs})

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
            tombstones = await self._column(FIND_TOMBSTONES, {})
            async for result in self._purge(tombstones, CLAIM):
                yield result
            async for page, which, values in self._exceeding(settings):
                in_use = await self._named_sessions(page)
                for some in _in_groups([run_id for run_id in page if run_id not in in_use]):
                    deleted = await self._soft_delete(some, which, values, SKIP_LOCKED)
                    async for result in self._purge(list(deleted), CLAIM):
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
                cursor = await connection.execute(DELETE_OLD_TOMBSTONES, values)
                return len(await cursor.fetchall())

    async def _exceeding(
        self, settings: ProjectSettings
    ) -> AsyncGenerator[tuple[list[UUID], str, dict[str, Any]]]:
        """Yield the runs that exceed a project's limits in the order of their deletion.

        Each page has the condition to check again when its runs are locked, and its values.
        """
        now = await self._now()
        if settings.keep_days is not None:
            # A run is kept while its piece of work has a younger one, up to twice as long.
            for factor in (2, 1):
                before = now - timedelta(days=factor * settings.keep_days)
                values = {"now": now, "before": before}
                async for page in self._pages(TOO_OLD, values):
                    heads = {"heads": list(page.values())} | values
                    young = await self._column(FIND_YOUNGER_WORK, heads) if factor == 1 else []
                    kept = {*young}
                    yield [run for run, head in page.items() if head not in kept], TOO_OLD, values
        if settings.keep_runs is not None:
            last = await self._fetch_all(LAST_KEPT, {"keep_runs": settings.keep_runs})
            for recorded_at, run_id in last:
                values = {"now": now, "last_at": recorded_at, "last": run_id}
                async for page in self._pages(TOO_MANY, values):
                    # The last parts first, so that the rest of them is still one piece of work.
                    yield [run for run, _ in await self._later_parts([*page])], ANY_RUN, {}
                    yield [*page], TOO_MANY, values

    async def _pages(
        self, which: str, values: dict[str, Any]
    ) -> AsyncGenerator[dict[UUID, UUID], None]:
        """Yield pages of the runs that meet a condition, with the first runs of their work.

        Each run is yielded once.
        """
        position: dict[str, Any] = {"after_at": "-infinity", "after": UUID(int=0)}
        query = find_runs(which)
        while page := await self._fetch_all(query, {**values, **position, "most": PAGE_RUNS}):
            yield {run_id: head_id for run_id, head_id, _ in page}
            position["after"], _, position["after_at"] = page[-1]

    # --- Act 1 -----------------------------------------------------------------------------------

    async def _soft_delete(
        self,
        runs: Sequence[UUID],
        which: str = ANY_RUN,
        values: dict[str, Any] | None = None,
        locking: str = WAIT,
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
        heads: set[UUID] = set()
        log_sessions: set[UUID] = set()
        now = await self._now()  # Citus allows no clock in an update
        for group in await runs_by_shard(self._project.pool, runs):
            if not group:  # Citus locks no rows of no run
                break
            parameters = self._values({"now": now, **(values or {}), "runs": group})
            async with in_project(self._project, seconds=None) as connection:
                rows = await _fetched(connection, lock_runs(locking), parameters)
                locked = {run_id: session for run_id, session, _ in rows}
                parameters["runs"] = list(locked)
                if parameters["runs"]:
                    checked = await _column(connection, check_runs(which), parameters)
                    parameters["runs"] = checked
                if not parameters["runs"]:
                    continue
                for statement in (SOFT_DELETE, *FORGET_WORK):
                    await connection.execute(statement, parameters)
                log_sessions.update(await _column(connection, DELETE_SESSIONS, parameters))
                sessions = {
                    run: str(run) if locked[run] is None else locked[run]
                    for run in parameters["runs"]
                }
                await _delete_states(
                    connection, parameters, sessions, with_shared=with_shared_states
                )
            deleted |= sessions
            heads.update(head for run_id, _, head in rows if run_id in sessions)
        if deleted and locking == WAIT:
            await self._delete_conversations(set(deleted.values()), heads)
        if deleted:
            self._on_written(deleted.keys())
        if unnamed := log_sessions - await self._named_sessions(log_sessions):
            deleted |= await self._soft_delete(sorted(unnamed), locking=locking)
        return deleted

    async def _delete_conversations(
        self, sessions: Collection[str], heads: Collection[UUID]
    ) -> None:
        """Delete the figures of conversations of which runs were deleted.

        They have texts of these runs. The linker, which visits deleted runs, computes those again
        that still have runs; those of pruned runs, too.
        """
        of_heads = await self._column(FIND_SESSIONS_OF_HEADS, {"heads": list(heads)})
        values = self._values({"conversations": sorted(map(key_of, {*sessions, *of_heads}))})
        async with in_project(self._project, seconds=None) as connection:
            await connection.execute(LOCK_CONVERSATIONS, values)
            await connection.execute(DELETE_CONVERSATIONS, values)

    async def _named_sessions(self, sessions: Collection[UUID]) -> set[UUID]:
        """Return the sessions among `sessions` that some run still names.

        Each session is identified by the run that holds its log records.
        """
        if not sessions:
            return set()
        return set(await self._column(FIND_NAMED_SESSIONS, {"sessions": list(sessions)}))

    # --- Acts 2 and 3 ----------------------------------------------------------------------------

    async def _purge(self, runs: Sequence[UUID], claim: str) -> AsyncGenerator[PurgeResult, None]:
        """Delete the rows of tombstones, and yield the result of each transaction.

        Args:
            runs: The runs. Those that are no tombstones are skipped.
            claim: Whether to wait for other processes that purge some of the runs, or to skip those
                runs.
        """
        for some in _in_groups(runs):
            for group in await runs_by_shard(self._project.pool, sorted(some)):
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
        parameters = self._values({"now": await self._now(), "runs": runs})
        done, most = PurgeResult(), self._max_rows
        async with in_project(self._project, seconds=None) as connection:
            parameters["runs"] = [
                run_id for run_id, *_ in await _fetched(connection, claim, parameters)
            ]
            parameters["runs"] = await _column(connection, FIND_CLAIMED, parameters)
            if not parameters["runs"]:
                return None
            for statement in UNLINK:
                await connection.execute(statement, parameters)
            for statement in DELETE_ROWS:
                values = {**parameters, "most": most}
                [(rows, records, spans)] = await _fetched(connection, statement, values)
                done += PurgeResult(0, records, spans)
                most -= rows
                if most <= 0:
                    return done
            await connection.execute(CHECK_REFERENCES)
            await connection.execute(FINISH_PURGE, parameters)
        return done + PurgeResult(len(parameters["runs"]))

    # --- Queries ---------------------------------------------------------------------------------

    def _values(self, values: dict[str, Any]) -> dict[str, Any]:
        now = self._clock and self._clock()
        return {"now": now, **values, "project_id": self._project.project_id}

    async def _fetch_all(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await fetched(self._project, query, self._values(values))

    async def _column(self, query: str, values: dict[str, Any]) -> list[Any]:
        return [value for (value,) in await self._fetch_all(query, values)]

    async def _now(self) -> datetime:
        if self._clock is not None:
            return self._clock()
        [(now,)] = await self._fetch_all("SELECT statement_timestamp()", {})
        assert isinstance(now, datetime)
        return now


def _in_groups(runs: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [runs[begin : begin + RUNS_AT_ONCE] for begin in range(0, len(runs), RUNS_AT_ONCE)]


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
    states = await _column(connection, FIND_STATES, values)
    if not states:
        return
    # One at a time on Citus: each may be on another shard.
    for some in [[each] for each in states] if await is_spread_by(connection) else [states]:
        await connection.execute(LOCK_STATES, {**values, "states": some})
    if not with_shared:
        for session in values["sessions"]:
            with suppress(ValueError):
                values["named"].append(UUID(session))
        shared = await _fetched(connection, FIND_SESSIONS_IN_USE, values)
        unshared = set(values["sessions"]).difference(session for (session,) in shared)
        values["sessions"] = list(unshared)
    await connection.execute(DELETE_STATES, values)
