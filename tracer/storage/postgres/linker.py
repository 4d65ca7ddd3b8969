"""The linker: derives from claims which run continues which, and writes the links (decision 34).

It visits every run whose revision grew, and every run whose links depend on a run that changed. A
visit reads committed rows only. The rule itself is `tracer.lineage.links`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tracer.lineage.links import (
    Candidate,
    LinkableCall,
    LinkableRun,
    Links,
    Part,
    links_of,
    whole_status,
)
from tracer.records import ABANDONED
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres.citus import runs_per_transaction
from tracer.storage.postgres.conversations import write_conversations
from tracer.storage.postgres.pool import SyncConnection, postponing_errors
from tracer.storage.postgres.projection_rows import ProjectorSession
from tracer.storage.postgres.run_tables import shown_status
from tracer.storage.postgres.tables import (
    ALWAYS,
    HAS_SESSION_CLAIMS,
    RUN_NOT_DELETED,
    START,
    TABLES,
    is_one_of,
)
from tracer.storage.postgres.watch import notify_written

RUNS_AT_ONCE = 200
"""The most runs that are visited together."""

# --- The SQL. Each statement takes the project's id as $1, except `PROJECTS`.

PROJECTS = "SELECT DISTINCT project_id FROM run WHERE NOT is_linked ORDER BY project_id"
"""Find the projects that have runs to visit."""

LOCK = "SELECT pg_try_advisory_lock(hashtextextended('link', $1::integer))"
"""Claim the links of a project until `UNLOCK`. No other linker writes them meanwhile: a lost
connection ends both the claim and the possibility to write."""

UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('link', $1::integer))"

UNLINKED = """
SELECT root_plan_id FROM run WHERE project_id = $1 AND NOT is_linked AND root_plan_id > $2
ORDER BY root_plan_id LIMIT $3"""
"""Find at most $3 runs to visit after the run $2, in the order of their ids."""

_OF_SESSIONS = is_one_of("session_id", "$2")

READ_RUNS = f"""
SELECT root_plan_id, {START}, finished_at, {shown_status("run", "= ANY($2::uuid[])")}, session_id,
    is_agent_work AND NOT is_bare, is_bare, follows_calls, follows_runs, follows_keys, work_keys,
    prompt_sequence, prompt_number, linked_session_id, coalesce(head_id, root_plan_id),
    continues_run_id, is_inside, whole_status, beginning_deleted, revision, linked_revision,
    deleted_at IS NOT NULL
FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])"""

READ_PARTS = f"""
SELECT head_id, root_plan_id, {START}, {shown_status("run")}, continues_run_id, is_inside
FROM run WHERE project_id = $1 AND head_id = ANY($2::uuid[]) AND {RUN_NOT_DELETED}"""
"""Read the runs whose heads are $2, without the heads."""

READ_LINKS = """
SELECT root_plan_id, continued_run_id, tool_call_id, is_link, inferred_from
FROM run_link WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])
ORDER BY root_plan_id, number"""

FIND_FOLLOWERS = """
SELECT continued_run_id, root_plan_id FROM run_link
WHERE project_id = $1 AND continued_run_id = ANY($2::uuid[])"""
"""Find the runs that have one of the runs $2 as a candidate."""

ARE_WAITING = """
SELECT EXISTS (SELECT 1 FROM run_link WHERE project_id = $1 AND continued_run_id IS NULL)"""
"""Return whether any run claims a call that no run had."""

READ_CHANGED_CALLS = f"""
SELECT call.tool_call_id FROM run
JOIN act_tool_info AS call ON call.project_id = run.project_id
    AND call.root_plan_id = run.root_plan_id AND call.{ALWAYS}
    AND call.revision >= abs(run.linked_revision)
WHERE run.project_id = $1 AND run.root_plan_id = ANY($2::uuid[])
    AND call.project_id = $1 AND call.root_plan_id = ANY($2::uuid[])"""
"""Read the calls of the runs $2 that have changed since the runs were visited."""

FIND_CLAIMING = """
SELECT tool_call_id, root_plan_id FROM run_link
WHERE project_id = $1 AND tool_call_id = ANY($2::uuid[])"""
"""Find the runs that claimed one of the calls $2 when they were visited last."""

FIND_CLAIMANTS = f"""
SELECT root_plan_id FROM run
WHERE project_id = $1 AND {_OF_SESSIONS} AND {RUN_NOT_DELETED} AND {HAS_SESSION_CLAIMS}
    AND ({START} >= $3 OR follows_keys && $4::text[] OR work_keys && $4::text[]
        OR prompt_sequence IS NOT NULL)"""
"""Find the runs of the sessions $2 that may continue another run of their session, and that started
at $3 or later, share one of the keys $4, or have a prompt of unknown text."""

FIND_AGENTS = f"""
SELECT root_plan_id FROM run
WHERE project_id = $1 AND {_OF_SESSIONS} AND {RUN_NOT_DELETED}
    AND is_agent_work AND NOT is_bare
    AND {START} <= $4 AND (finished_at IS NULL OR finished_at >= $3)"""
"""Find the runs of the sessions $2 that have an agent, and that overlap the time from $3 to $4."""

_CALL = """call.root_plan_id, call.tool_call_id, call.provider_call_id, call.started_at,
    call.finished_at, call.agent_key, call.agent_end_sequence"""

_HAS_KEY = " OR ".join(
    f"({is_one_of(f'call.{key}', '$3')})" for key in ("provider_call_id", "agent_key")
)

READ_CALLS = f"""
SELECT {_CALL} FROM act_tool_info AS call
WHERE call.project_id = $1 AND call.tool_call_id = ANY($2::uuid[])"""

READ_KEYED_CALLS = f"""
SELECT {_CALL} FROM act_tool_info AS call
JOIN run ON run.project_id = call.project_id AND run.root_plan_id = call.root_plan_id
WHERE call.project_id = $1 AND ({_HAS_KEY})
    AND {is_one_of("run.session_id", "$2")} AND run.deleted_at IS NULL"""
"""Read the calls of the sessions $2 that have, or whose agents have, one of the keys $3."""

READ_CALLS_OF_RUNS = f"""
SELECT {_CALL} FROM act_tool_info AS call
WHERE call.project_id = $1 AND call.root_plan_id = ANY($2::uuid[]) AND call.{ALWAYS}
    AND (call.provider_call_id = ANY($3::text[]) OR call.agent_key = ANY($3::text[]))"""
"""Read the calls of the runs $2 that have, or whose agents have, one of the keys $3."""

READ_ENDED_AGENTS = f"""
SELECT {_CALL} FROM act_tool_info AS call
WHERE call.project_id = $1 AND call.root_plan_id = ANY($2::uuid[])
    AND call.agent_end_sequence IS NOT NULL"""
"""Read the calls of the runs $2 that set an agent to work which has ended in the background."""

READ_LAST_MOMENTS = f"""
SELECT root_plan_id, max(moment) FROM (
    {
    " UNION ALL ".join(
        f'''SELECT root_plan_id, greatest(started_at, finished_at) AS moment
    FROM {TABLES[kind]} WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND {ALWAYS}'''
        for kind in RECORDS
    )
} ) AS record GROUP BY root_plan_id"""
"""Return the last recorded moment of each of the runs $2."""

LOCK_RUNS = """
SELECT root_plan_id FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])
ORDER BY root_plan_id FOR NO KEY UPDATE SKIP LOCKED"""
"""Lock the runs $2, and return those that no writer has locked: projections must not wait for the
linker to wait."""

LOCK_MARKED = """
SELECT FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND linked_revision > 0
ORDER BY root_plan_id FOR NO KEY UPDATE NOWAIT"""
"""Lock the runs $2. Raises an error if a writer has locked one."""

MARK = """
UPDATE run SET linked_revision = -linked_revision
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND linked_revision > 0"""
"""Request a visit of the locked runs $2. Runs that were never visited are visited anyway."""

WRITE = """
UPDATE run SET continues_run_id = incoming.continues_run_id, head_id = incoming.head_id,
    linked_session_id = incoming.session_id,
    is_inside = incoming.is_inside, whole_status = incoming.whole_status,
    beginning_deleted = incoming.beginning_deleted, revision = run.revision + incoming.growth,
    changed_at = statement_timestamp(), linked_revision = incoming.linked_revision,
    parts_revision = CASE WHEN incoming.has_changed_parts THEN run.revision + incoming.growth
        ELSE run.parts_revision END
FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::boolean[], $6::text[], $7::boolean[],
        $8::bigint[], $9::bigint[], $10::boolean[], $11::boolean[], $12::text[])
    AS incoming (root_plan_id, continues_run_id, head_id, is_inside, whole_status,
        beginning_deleted, growth, linked_revision, is_deleted, has_changed_parts, session_id)
WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
    AND run.root_plan_id = ANY($2::uuid[]) AND (run.deleted_at IS NOT NULL) = incoming.is_deleted
RETURNING run.root_plan_id"""
"""Write the links of the locked runs $2, and return the runs. Runs that were deleted meanwhile are
skipped."""

REMOVE_LINKS = "DELETE FROM run_link WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])"

ADD_LINKS = """
INSERT INTO run_link (project_id, root_plan_id, number, continued_run_id, tool_call_id, is_link,
    inferred_from)
SELECT $1, * FROM unnest($2::uuid[], $3::integer[], $4::uuid[], $5::uuid[], $6::boolean[],
    $7::text[])
ON CONFLICT DO NOTHING"""
"""Add links. None of them exists: without ON CONFLICT, Citus would use COPY, which row-level
security forbids."""


@dataclass(frozen=True)
class _Stored:
    """A run with its links as they are stored."""

    run: LinkableRun
    status: str
    linked_session_id: str | None
    """Its session when it was visited last."""
    head_id: UUID
    """Its own id if it continues nothing."""
    continues_run_id: UUID | None
    is_inside: bool
    whole_status: str | None
    beginning_deleted: bool
    revision: int
    linked_revision: int
    is_deleted: bool

    @property
    def run_id(self) -> UUID:
        return self.run.root_plan_id

    @property
    def is_new(self) -> bool:
        """Whether it changed since the last visit. Otherwise it was only marked."""
        return self.revision > abs(self.linked_revision)

    @property
    def sessions(self) -> set[str]:
        """Its session, now and when it was visited last."""
        return {each for each in (self.run.session_id, self.linked_session_id) if each is not None}


class Linker:
    """Visits runs over a projector's connection."""

    def __init__(
        self, connection: SyncConnection, on_step: Callable[[], None] = lambda: None
    ) -> None:
        """Set the connection, and a function that is called before each transaction that writes.

        The connection must be in autocommit mode and not pooled.
        """
        self._session = ProjectorSession(connection)
        self._on_step = on_step
        self._after: dict[int, UUID] = {}
        """The last visited run of each project. The next visits continue there, so that a run
        that changes all the time does not keep others waiting."""

    def visit_due(self) -> int:
        """Visit a batch of runs of each project that has some, and return how many were visited.

        Projects whose links another linker is writing are skipped. If the visits of a project fail,
        the failure is logged, and they are repeated later.

        Raises:
            psycopg.OperationalError: The database does not answer.
        """
        projects = [project_id for (project_id,) in self._session.ask(PROJECTS)]
        return sum(self._visit_some(project_id) for project_id in projects)

    def _visit_some(self, project_id: int) -> int:
        [(is_claimed,)] = self._session.ask(LOCK, project_id)
        if not is_claimed:
            return 0
        written = 0
        try:
            with postponing_errors("runs_not_linked", project_id):
                after = self._after.pop(project_id, UUID(int=0))
                with self._session.in_project(project_id, _ONE_SNAPSHOT):
                    found = self._session.ask(UNLINKED, project_id, after, RUNS_AT_ONCE)
                runs = [run_id for (run_id,) in found]
                if len(runs) == RUNS_AT_ONCE:
                    self._after[project_id] = runs[-1]
                written = (self.visit(project_id, runs) if runs else 0) or after.int > 0
        finally:
            if not self._session.connection.closed:
                self._session.ask(UNLOCK, project_id)
        return written

    def visit(self, project_id: int, runs: Collection[UUID]) -> int:
        """Derive and write the links of some runs. The caller has claimed them.

        On Citus the runs are read together, because that reads all shards, and written one by one.

        Returns:
            The number of runs whose links were written. Runs that others have locked are skipped.
        """
        with self._session.in_project(project_id, _ONE_SNAPSHOT):
            visit = _Visit(self._session, project_id, runs)
            visit.read()
        for some in self._by_shard(visit.marked):
            self._on_step()
            with self._session.in_project(project_id):
                self._session.ask(LOCK_MARKED, project_id, some)
                self._session.ask(MARK, project_id, some)
        written, changed = 0, list[UUID]()
        for some in self._by_shard(runs):
            self._on_step()
            with self._session.in_project(project_id):
                number, of_these = visit.write(some)
            written += number
            changed += of_these
        if changed:
            notify_written(self._session.connection, changed)
        return written

    def _by_shard(self, runs: Iterable[UUID]) -> list[list[UUID]]:
        in_order = sorted(runs)
        most = runs_per_transaction(len(in_order) or 1, is_spread=self._session.is_spread)
        return [in_order[begin : begin + most] for begin in range(0, len(in_order), most)]


_ONE_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _Visit:
    """The state of one visit of a batch of runs."""

    def __init__(self, session: ProjectorSession, project_id: int, runs: Collection[UUID]) -> None:
        self._ask = session.ask
        self._project_id = project_id
        self._wanted = sorted(runs)
        self._stored: dict[UUID, _Stored] = {}
        """The visited runs, and the others that were read."""
        self._calls: dict[UUID, dict[UUID, LinkableCall]] = defaultdict(dict)
        self._links: dict[UUID, Links] = {}
        self._whole: dict[UUID, str | None] = {}
        self._candidates: dict[UUID, tuple[Candidate, ...]] = {}
        """The candidates as they are stored."""
        self.marked: set[UUID] = set()
        """The runs whose links or whole status depend on the visited runs."""

    @property
    def _visited(self) -> list[_Stored]:
        return [self._stored[run_id] for run_id in self._wanted if run_id in self._stored]

    # --- Read ------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the runs, derive their links, and find the runs that depend on them."""
        self._read_runs(self._wanted)
        self._read_runs(filter(None, [each.continues_run_id for each in self._visited]))
        existing = [each.run for each in self._visited if not each.is_deleted]
        self._candidates = self._read_candidates()
        claimants = self._read_claimants()
        self._read_claimed(existing, claimants)
        runs = [self._with_calls(each.run) for each in self._stored.values() if not each.is_deleted]
        others = sorted(runs, key=lambda run: run.order)
        heads = {run_id: each.head_id for run_id, each in self._stored.items()}
        for each in self._visited:
            links = Links() if each.is_deleted else links_of(each.run, others, heads)
            self._links[each.run_id] = links
        self._find_dependents(claimants)
        self._read_parts()

    def _read(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._ask(statement, self._project_id, *values)

    def _read_runs(self, runs: Iterable[UUID]) -> None:
        """Read runs that were not read yet."""
        missing = sorted({*runs} - self._stored.keys())
        if not missing:
            return
        found = [_stored(*row) for row in self._read(READ_RUNS, missing)]
        abandoned = [each.run_id for each in found if each.status == ABANDONED]
        last = dict(self._read(READ_LAST_MOMENTS, abandoned)) if abandoned else {}
        for each in found:
            end = last.get(each.run_id)
            if end is not None:
                each = replace(each, run=replace(each.run, ended_at=end))
            self._stored[each.run_id] = each

    def _read_candidates(self) -> dict[UUID, tuple[Candidate, ...]]:
        stored: dict[UUID, list[Candidate]] = defaultdict(list)
        for run_id, continued, call_id, is_link, evidence in self._read(READ_LINKS, self._wanted):
            stored[run_id].append(Candidate(continued, call_id, is_link, evidence))
        return {run_id: tuple(candidates) for run_id, candidates in stored.items()}

    def _read_claimants(self) -> list[LinkableRun]:
        """Return the runs that may continue another run of the sessions of the visited runs."""
        of_sessions = [each.run for each in self._visited if each.sessions]
        if not of_sessions:
            return []
        sessions = sorted({session for each in self._visited for session in each.sessions})
        first = min(run.started_at for run in of_sessions)
        keys = sorted({key for run in of_sessions for key in (*run.follows_keys, *run.work_keys)})
        found = [run_id for (run_id,) in self._read(FIND_CLAIMANTS, sessions, first, keys)]
        self._read_runs(found)
        return [self._stored[run_id].run for run_id in found if run_id in self._stored]

    def _read_claimed(self, runs: list[LinkableRun], claimants: list[LinkableRun]) -> None:
        """Read the runs and calls that visited runs claim, or that surround them.

        Runs that share a claim are claimants, or have candidates with the same call or run.
        """
        others = {run_id for run in runs for run_id in run.follows_runs}
        if others:
            others |= {run_id for _, run_id in self._read(FIND_FOLLOWERS, sorted(others))}
        if calls := sorted({call_id for run in runs for call_id in run.follows_calls}):
            others |= self._add_calls(self._read(READ_CALLS, calls))
            others |= {run_id for _, run_id in self._read(FIND_CLAIMING, calls)}
        of_sessions = [run for run in runs if run.session_id is not None]
        if keys := sorted({key for run in of_sessions for key in run.follows_keys}):
            sessions = sorted({run.session_id or "" for run in of_sessions if run.follows_keys})
            others |= self._add_calls(self._read(READ_KEYED_CALLS, sessions, keys))
        if any(run.prompt_sequence is not None for run in of_sessions):
            prompts = [run for run in (*runs, *claimants) if run.prompt_sequence is not None]
            ids = sorted({run.root_plan_id for run in prompts})
            others |= self._add_calls(self._read(READ_ENDED_AGENTS, ids))
        if bare := [run for run in of_sessions if run.is_bare]:
            sessions = sorted({run.session_id or "" for run in bare})
            first, last = (choose(run.started_at for run in bare) for choose in (min, max))
            others |= {run_id for (run_id,) in self._read(FIND_AGENTS, sessions, first, last)}
        self._read_runs(others)

    def _add_calls(self, rows: Iterable[tuple[Any, ...]]) -> set[UUID]:
        """Remember calls, and return their runs."""
        runs = set()
        for run_id, call_id, *fields in rows:
            self._calls[run_id][call_id] = LinkableCall(call_id, *fields)
            runs.add(run_id)
        return runs

    def _with_calls(self, run: LinkableRun) -> LinkableRun:
        calls = self._calls.get(run.root_plan_id)
        return replace(run, calls=tuple(calls.values())) if calls else run

    def _find_dependents(self, claimants: list[LinkableRun]) -> None:
        """Find the runs to mark.

        The dependents of a visited run are the runs that have it as a candidate, and, if it is new,
        those whose claims fit it. Its heads depend on it, too: their whole status contains its own.
        """
        visited = {each.run_id for each in self._visited}
        new = {each.run_id for each in self._visited if each.is_new}
        reheaded = {each.run_id for each in self._visited if self._head_of(each) != each.head_id}
        if moved := new | reheaded:
            for continued, run_id in self._read(FIND_FOLLOWERS, sorted(moved)):
                # Visited runs were derived from the present state of the others, except the heads.
                if run_id not in visited or continued in reheaded:
                    self.marked.add(run_id)
        for each in self._visited:
            links = self._links[each.run_id]
            if any(candidate.continued_run_id in reheaded for candidate in links.candidates):
                self.marked.add(each.run_id)
            heads = {each.head_id, self._head_of(each)} - {each.run_id}
            if each.is_new or each.run_id in reheaded or links.is_inside != each.is_inside:
                self.marked |= heads
        runs = [self._stored[run_id].run for run_id in new if not self._stored[run_id].is_deleted]
        others = [each for each in claimants if each.root_plan_id not in visited]
        self._mark_claimants(runs, others)
        self._mark_waiting(runs, visited)
        sessions = {session for run_id in new for session in self._stored[run_id].sessions}
        self.marked |= {
            each.root_plan_id
            for each in others
            if each.prompt_sequence is not None and each.session_id in sessions
        }

    def _head_of(self, stored: _Stored) -> UUID:
        return self._links[stored.run_id].head_id or stored.run_id

    def _mark_claimants(self, runs: list[LinkableRun], claimants: list[LinkableRun]) -> None:
        """Mark the runs whose claims fit the present state of `runs`, within their session."""
        pairs = [
            (run, claimant)
            for run in runs
            for claimant in claimants
            if claimant.session_id == run.session_id and claimant.order > run.order
        ]
        keys = sorted({key for _, claimant in pairs for key in claimant.follows_keys})
        of_run: dict[UUID, set[str | None]] = defaultdict(set)
        if keys:
            ids = sorted({run.root_plan_id for run, _ in pairs})
            for run_id, _, key, _, _, agent_key, _ in self._read(READ_CALLS_OF_RUNS, ids, keys):
                of_run[run_id] |= {key, agent_key}
        for run, claimant in pairs:
            if (
                {*claimant.follows_keys} & {*of_run[run.root_plan_id], *run.follows_keys}
                or {*claimant.work_keys} & {*run.work_keys}
                or (claimant.is_bare and run.has_agent)
            ):
                self.marked.add(claimant.root_plan_id)

    def _mark_waiting(self, runs: list[LinkableRun], visited: set[UUID]) -> None:
        """Mark the runs that claim a call of `runs`, or the same call or run as one of them."""
        if not runs:
            return
        calls = {call_id for run in runs for call_id in run.follows_calls}
        [(are_waiting,)] = self._read(ARE_WAITING)
        if are_waiting:
            changed = self._read(READ_CHANGED_CALLS, [run.root_plan_id for run in runs])
            calls |= {call_id for (call_id,) in changed}
        followed = {run_id for run in runs for run_id in run.follows_runs}
        for query, claimed in ((FIND_CLAIMING, calls), (FIND_FOLLOWERS, followed)):
            if claimed:
                found = self._read(query, sorted(claimed))
                self.marked |= {run_id for _, run_id in found} - visited

    def _read_parts(self) -> None:
        """Compute the whole status of the visited heads."""
        heads = [
            each.run_id
            for each in self._visited
            if not each.is_deleted and self._links[each.run_id].continues_run_id is None
        ]
        parts: dict[UUID, list[Part]] = defaultdict(list)
        for head_id, *part in self._read(READ_PARTS, heads) if heads else ():
            parts[head_id].append(Part(*part))
        self._whole = {
            head_id: whole_status([self._as_part(head_id), *of_head])
            for head_id, of_head in parts.items()
        }

    def _as_part(self, head_id: UUID) -> Part:
        head = self._stored[head_id]
        return Part(head_id, head.run.started_at, head.status)

    # --- Write -----------------------------------------------------------------------------------

    def write(self, runs: list[UUID]) -> tuple[int, list[UUID]]:
        """Write the links of some visited runs, and their conversations, in a transaction.

        Returns:
            The number of runs that were written, and the runs that changed for their readers.
        """
        locked = {run_id for (run_id,) in self._read(LOCK_RUNS, runs)}
        rows = [self._row(each) for each in self._visited if each.run_id in locked]
        if not rows:
            return 0, []
        written = {run_id for (run_id,) in self._read(WRITE, *map(list, zip(*rows, strict=True)))}
        replaced = [
            run_id
            for run_id in self._wanted
            if run_id in written
            and self._links[run_id].candidates != self._candidates.get(run_id, ())
        ]
        if replaced:
            self._read(REMOVE_LINKS, replaced)
            new = [
                (
                    *(run_id, number, each.continued_run_id, each.tool_call_id),
                    *(each.is_link, each.inferred_from),
                )
                for run_id in replaced
                for number, each in enumerate(self._links[run_id].candidates)
            ]
            if new:
                self._read(ADD_LINKS, *map(list, zip(*new, strict=True)))
        sessions = {each for run_id in written for each in self._stored[run_id].sessions}
        write_conversations(self._ask, self._project_id, sessions)
        return len(written), [row[0] for row in rows if row[0] in written and row[6]]

    def _row(self, stored: _Stored) -> tuple[Any, ...]:
        links = self._links[stored.run_id]
        whole = self._whole.get(stored.run_id)
        continued = stored.continues_run_id and self._stored.get(stored.continues_run_id)
        has_lost = stored.beginning_deleted or bool(continued and continued.is_deleted)
        has_lost &= links.continues_run_id is None and not stored.is_deleted
        new = (links.continues_run_id, self._head_of(stored), links.is_inside, whole, has_lost)
        old = (
            *(stored.continues_run_id, stored.head_id, stored.is_inside, stored.whole_status),
            stored.beginning_deleted,
        )
        # Readers of a head see its parts, so a change of a part is a change of the head.
        has_changed_parts = bool(whole or stored.whole_status) and (
            stored.linked_revision < 0 or new != old
        )
        growth = int(not stored.is_deleted and (new != old or has_changed_parts))
        linked = stored.revision + growth
        return (
            stored.run_id,
            links.continues_run_id,
            links.head_id,
            links.is_inside,
            whole,
            has_lost,
            growth,
            -linked if stored.run_id in self.marked else linked,
            stored.is_deleted,
            has_changed_parts,
            stored.run.session_id,
        )


def _stored(
    run_id: UUID,
    started_at: datetime,
    finished_at: datetime | None,
    status: str,
    session_id: str | None,
    has_agent: bool,
    is_bare: bool,
    follows_calls: list[UUID] | None,
    follows_runs: list[UUID] | None,
    follows_keys: list[str] | None,
    work_keys: list[str] | None,
    prompt_sequence: int | None,
    prompt_number: int | None,
    *links: Any,
) -> _Stored:
    run = LinkableRun(
        run_id,
        started_at,
        finished_at,
        session_id,
        has_agent,
        is_bare,
        follows_calls or (),
        follows_runs or (),
        follows_keys or (),
        work_keys or (),
        prompt_sequence,
        prompt_number,
    )
    return _Stored(run, status, *links)
