"""Read records, lists, whole runs and lineage from Postgres."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from psycopg.rows import dict_row

from tracer.errors import RecordNotFound, StoreUnavailable
from tracer.lineage import Payloads, Revision, TreeRows
from tracer.otel.otlp.spans import run_ids_like
from tracer.records import Kind, Lease, Run
from tracer.records.merge import RULES
from tracer.records.pages import (
    Conversation,
    Overview,
    OverviewFilter,
    Page,
    RunFacets,
    RunFound,
    RunHistogram,
    RunOrder,
    RunPreview,
    RunSearch,
    SpendOf,
    TimeRange,
    ToolHistory,
    ToolStatsPage,
    TurnPlace,
    TurnsPage,
)
from tracer.records.record_classes import (
    RECORDS,
    ActToolInfo,
    AgentExecutionRecord,
    PlanExecutionRecord,
    Record,
    RecordReference,
    ThinkActRecord,
)
from tracer.records.span_records import SpanRecords
from tracer.records.spans import Contents
from tracer.search import Query, SearchIndex
from tracer.storage.postgres.citus import check_workers
from tracer.storage.postgres.conversations import find_turn, read_conversations, read_turns
from tracer.storage.postgres.days import read_overview, read_spend
from tracer.storage.postgres.leases import read_leases
from tracer.storage.postgres.lists import (
    Listing,
    list_of_runs,
    list_of_tool_calls,
    read_facets,
    read_histogram,
    read_page,
    read_run_previews,
    read_sorted_page,
)
from tracer.storage.postgres.migrate import check_schema
from tracer.storage.postgres.pool import (
    ANSWER_SECONDS,
    SyncConnection,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.rows import KIND_WORDS, columns, expressions, named, select
from tracer.storage.postgres.search_pages import FoundRuns, read_places, read_places_in_run
from tracer.storage.postgres.session import ProjectPool, fetched, in_snapshot, standing_of_sync
from tracer.storage.postgres.spans import list_parts, read_part, read_span_records
from tracer.storage.postgres.stats import read_history_of_tool, read_stats_of_tools
from tracer.storage.postgres.tables import (
    ALWAYS,
    NOT_DELETED,
    RUN_NOT_DELETED,
    START,
    TABLES,
    is_text,
)
from tracer.storage.postgres.tree import (
    payload_expressions,
    read_run_changes,
    read_run_revision,
    read_run_revisions,
    read_tree,
)
from tracer.store import (
    EVERYTHING,
    AnyRecord,
    ConversationFilter,
    Exchange,
    PlanWithOpener,
    RecordMatch,
    RunChanges,
    RunFilter,
    SpanPart,
    ToolCallFilter,
    ToolCallPreview,
    ToolCallWithLineage,
    WholeRun,
)

# --- The lineage of a tool call, computed from its run's records.


def parent_of(record: AnyRecord) -> RecordReference | None:
    """Return the kind and id of the parent of `record` in the tree."""
    match record:
        case ActToolInfo():
            parents = {
                Kind.TOOL_CALL: record.parent_tool_call_id,
                Kind.THINK_ACT: record.think_act_id,
                Kind.STEP: record.step_id,
            }
        case ThinkActRecord():
            parents = {Kind.STEP: record.step_id}
        case AgentExecutionRecord():
            parents = {Kind.PLAN: record.plan_id}
        case PlanExecutionRecord():
            parents = {
                Kind.TOOL_CALL: record.tool_call_id,
                Kind.STEP: record.opened_by_step_id,
            }
    return next(((kind, id_) for kind, id_ in parents.items() if id_ is not None), None)


def path_down_to(
    call: ActToolInfo, records: Mapping[RecordReference, AnyRecord]
) -> list[AnyRecord]:
    """Return the ancestors of `call`, outermost first, and `call` itself.

    If an ancestor is missing from `records`, the path starts below it. If the records form a
    circle, each record is returned once.
    """
    path: list[AnyRecord] = [call]
    seen: set[RecordReference] = {(Kind.TOOL_CALL, call.tool_call_id)}
    parent = parent_of(call)
    while parent is not None and parent not in seen and parent in records:
        seen.add(parent)
        path.append(records[parent])
        parent = parent_of(records[parent])
    return path[::-1]


# --- Read the records of a run from Postgres, for an export.

R = TypeVar("R", bound=Record)

_IN_RUN = "project_id = %(project_id)s AND root_plan_id = %(run)s"

_OF_RUN = "= %(run)s"

_RUN = f"SELECT {columns(Run, _OF_RUN)} FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED}"

_RUNS = f"""
SELECT {columns(Run, "= ANY(%(runs)s)")} FROM run
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND {RUN_NOT_DELETED}"""

_PARTS_OF_RUN = f"""
SELECT root_plan_id FROM run
WHERE project_id = %(project_id)s AND (root_plan_id = %(run)s OR head_id = %(run)s)
    AND {RUN_NOT_DELETED}"""

_LATER_PARTS = f"""
SELECT root_plan_id FROM run
WHERE project_id = %(project_id)s AND head_id = %(run)s AND {RUN_NOT_DELETED}
ORDER BY {START}, root_plan_id"""

_SOURCE = f"SELECT source FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED}"

_RECORDS = {
    kind: f"SELECT {columns(record, _OF_RUN)} FROM {TABLES[kind]} WHERE {_IN_RUN} AND {ALWAYS}"
    f" ORDER BY {RULES[kind].id_field}"
    for kind, record in RECORDS.items()
}


def read_whole_run(
    connection: SyncConnection, project_id: int, root_plan_id: UUID, *, with_projected: bool
) -> WholeRun:
    """Return the records of a run.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The run's project.
        root_plan_id: The run.
        with_projected: Whether to return the records of a run that arrived as spans, too.
    """
    parameters = {"project_id": project_id, "run": root_plan_id}
    source = _source_of_run(connection, parameters)
    [run] = _records(connection, Run, _RUN, parameters)
    records = {
        kind: _records(connection, record, _RECORDS[kind], parameters)
        for kind, record in RECORDS.items()
        if with_projected or source == "events"
    }
    parts = connection.execute(_LATER_PARTS, parameters).fetchall()
    return WholeRun(run, source, records, [run_id for (run_id,) in parts])


def _records(
    connection: SyncConnection, record: type[R], query: str, parameters: dict[str, Any]
) -> list[R]:
    rows = connection.cursor(row_factory=dict_row).execute(query, parameters).fetchall()
    return [record(**row) for row in rows]


def _source_of_run(connection: SyncConnection, parameters: dict[str, Any]) -> str:
    """Return whether a run arrived as `events` or as `spans`.

    Raises:
        RecordNotFound: The run does not exist.
    """
    row = connection.execute(_SOURCE, parameters).fetchone()
    if row is None:
        raise RecordNotFound("run", parameters["run"])
    source: str = row[0]
    return source


# --- Read records, lists and lineage from Postgres. `tree.py` reads trees.

P = TypeVar("P", bound=AnyRecord)

KINDS = {record: kind for kind, record in RECORDS.items()}
ID_FIELDS = {kind: RULES[kind].id_field for kind in KINDS.values()}

_BY_ID = {
    record: f"""
SELECT {columns(record)} FROM {TABLES[kind]}
WHERE {ID_FIELDS[kind]} = %(id)s AND project_id = %(project_id)s AND {NOT_DELETED}
ORDER BY status = 'unknown', root_plan_id LIMIT 1"""
    for record, kind in KINDS.items()
}

_BY_IDS_IN_RUN = {
    record: f"""
SELECT {columns(record, _OF_RUN)} FROM {TABLES[kind]}
WHERE {_IN_RUN} AND {ID_FIELDS[kind]} = ANY(%(ids)s)"""
    for record, kind in KINDS.items()
}

_SUB_PLANS = f"""
SELECT {columns(PlanExecutionRecord, _OF_RUN)} FROM plan_execution_record
WHERE {_IN_RUN} AND tool_call_id = %(call)s ORDER BY position, plan_id"""

_RUN_EXISTS = f"EXISTS (SELECT 1 FROM run WHERE {_IN_RUN} AND {RUN_NOT_DELETED})"

_MESSAGES = f"""
SELECT think_act_id, messages FROM think_act_record
WHERE {_IN_RUN} AND {ALWAYS} AND messages IS NOT NULL AND {_RUN_EXISTS}"""

_MESSAGE_BYTES = f"""
SELECT coalesce(sum(octet_length(messages)), 0)::bigint FROM think_act_record
WHERE {_IN_RUN} AND {ALWAYS} AND {_RUN_EXISTS}"""

_RUNS_LIKE = f"""
SELECT root_plan_id FROM run
WHERE project_id = %s AND root_plan_id BETWEEN %s AND %s AND source = 'spans'
    AND {RUN_NOT_DELETED}
ORDER BY root_plan_id LIMIT 10"""

_HANDLE = re.compile("r?([0-9a-f]{6,10})")
_SPAN = re.compile("([0-9a-f]{32}):([0-9a-f]{16})")

MOST_MATCHES = 20
"""The most records that a reference may mean."""

_NAMES = {
    Kind.PLAN: "coalesce(title, agent_name)",
    Kind.STEP: "agent_name",
    Kind.THINK_ACT: "coalesce(model, requested_model)",
    Kind.TOOL_CALL: "name",
}


def _matches(condition: str) -> str:
    """Return a query for the records of all kinds, with `{id}` in the condition for their id."""
    return " UNION ALL ".join(
        f"(SELECT '{kind}' AS kind, {id_field} AS id, root_plan_id, {_NAMES[kind]} AS name, status"
        f" FROM {TABLES[kind]}"
        f" WHERE {condition.format(id=id_field)} AND project_id = %(project_id)s AND {NOT_DELETED}"
        f" LIMIT {MOST_MATCHES})"
        for kind, id_field in ID_FIELDS.items()
    )


def _found(matches: str) -> str:
    return f"""
SELECT DISTINCT ON (id) kind, id, root_plan_id, name FROM ({matches}) AS record
ORDER BY id, status = 'unknown', root_plan_id LIMIT {MOST_MATCHES}"""


_BY_ANY_ID = _found(
    _matches("{id} = %(id)s")
    + f""" UNION ALL (
SELECT 'run', root_plan_id, root_plan_id, title, 'unknown'::record_status FROM run
WHERE root_plan_id = %(id)s AND project_id = %(project_id)s AND {RUN_NOT_DELETED})"""
)
"""Of a run that has no records yet, its row alone."""

# Not LIKE, which is not leakproof: row-level security would not use the index.
BY_HANDLE = _found(_matches("handle_key >= %(from)s AND handle_key < %(to)s"))

_BY_PROVIDER_ID = f"""
SELECT 'toolCall', tool_call_id, root_plan_id, name FROM act_tool_info
WHERE {is_text("provider_call_id", "id")} AND project_id = %(project_id)s AND {NOT_DELETED}
ORDER BY recorded_at DESC LIMIT {MOST_MATCHES}"""

_CANCEL_REQUESTS = """
SELECT root_plan_id FROM run
WHERE project_id = %s AND root_plan_id = ANY(%s)
    AND (cancel_requested_at IS NOT NULL OR deleted_at IS NOT NULL)"""

_PREVIEW = named(
    expressions(Kind.TOOL_CALL) | payload_expressions(Kind.TOOL_CALL, Payloads.PREVIEW)
)

# UNION drops rows found before, so that the recursion ends on cycles.
_ABOVE = f"""
WITH RECURSIVE above (kind, id) AS (
    SELECT 'toolCall', %(call)s::uuid
    UNION
    SELECT parent.* FROM above, LATERAL (
        SELECT CASE
            WHEN parent_tool_call_id IS NOT NULL THEN 'toolCall'
            WHEN think_act_id IS NOT NULL THEN 'thinkAct' ELSE 'step' END,
            coalesce(parent_tool_call_id, think_act_id, step_id)
        FROM act_tool_info WHERE above.kind = 'toolCall' AND tool_call_id = above.id AND {_IN_RUN}
        UNION ALL
        SELECT 'step', step_id
        FROM think_act_record
        WHERE above.kind = 'thinkAct' AND think_act_id = above.id AND {_IN_RUN}
        UNION ALL
        SELECT 'plan', plan_id
        FROM agent_execution_record
        WHERE above.kind = 'step' AND step_id = above.id AND {_IN_RUN}
        UNION ALL
        SELECT CASE WHEN tool_call_id IS NOT NULL THEN 'toolCall' ELSE 'step' END,
            coalesce(tool_call_id, opened_by_step_id)
        FROM plan_execution_record
        WHERE above.kind = 'plan' AND plan_id = above.id AND {_IN_RUN}
    ) AS parent (kind, id)
    WHERE parent.id IS NOT NULL
)
SELECT kind, id FROM above"""

_EXCHANGES = f"""
SELECT root_plan_id, user_request, CASE WHEN status = 'succeeded' THEN summary END
FROM plan_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND plan_id = root_plan_id
    AND status >= 'cancelled' AND user_request IS NOT NULL AND {NOT_DELETED}"""


class PostgresReader:
    """`tracer.store.TraceReader` over a project's connections."""

    def __init__(self, project: ProjectPool, search: SearchIndex | None = None) -> None:
        self._project = project
        self._search = search or SearchIndex(None)
        self._project_id = project.project_id
        self._given_up: set[asyncio.Task[None]] = set()

    async def list_runs(
        self,
        wanted: RunFilter,
        limit: int,
        cursor: str | None,
        order: RunOrder = RunOrder.LATEST,
    ) -> Page[RunPreview]:
        """Return a page of runs."""
        is_latest = order is RunOrder.LATEST
        all_parts = wanted.all_parts

        def read(connection: SyncConnection) -> Page[RunPreview]:
            if wanted.q is not None and is_latest:
                return self._found(connection, wanted, limit, cursor)
            listing, back_to = self._listing(connection, wanted, cursor if is_latest else None)
            if is_latest:
                page = read_page(connection, Run, columns(Run), listing, limit)
            else:
                page = read_sorted_page(
                    connection, listing, order, limit, cursor, wholes=not all_parts
                )
            previews = read_run_previews(
                connection, self._project_id, page.items, all_parts=all_parts
            )
            up_to = None if wanted.q is None else self._search.up_to(self._project_id)
            return Page(previews, page.next_cursor, back_to or page.searched_back_to, up_to)

        return await in_snapshot(self._project, read)

    def _found(
        self, connection: SyncConnection, wanted: RunFilter, limit: int, cursor: str | None
    ) -> Page[RunPreview]:
        """Return a page of a search, with the places where the runs contain the words."""
        up_to = self._search.up_to(self._project_id)
        found = FoundRuns(connection, self._search, self._project_id, wanted)
        items, next_cursor, back_to = found.page(limit, cursor)
        previews = read_run_previews(
            connection, self._project_id, [run for run, _ in items], all_parts=wanted.all_parts
        )
        hits = [run_id for _, run_id in items]
        places = read_places(connection, self._project_id, hits, found.query)
        for preview, run_id in zip(previews, hits, strict=True):
            preview.found = RunFound(run_id=run_id, places=places.get(run_id, []))
        return Page(previews, next_cursor, back_to, up_to)

    async def search_run(self, root_plan_id: UUID, q: str) -> RunSearch:
        """Return the records of a piece of work that contain words of a query."""
        query = Query.parse(q)
        parameters = {"project_id": self._project_id, "run": root_plan_id}

        def read(connection: SyncConnection) -> RunSearch:
            runs = [run_id for (run_id,) in connection.execute(_PARTS_OF_RUN, parameters)]
            if root_plan_id not in runs:
                raise RecordNotFound("run", root_plan_id)
            items, has_more = read_places_in_run(connection, self._project_id, runs, query)
            is_cut = self._search.is_cut(self._project_id, runs)
            return RunSearch(items=items, has_more=has_more, is_cut=is_cut)

        return await in_snapshot(self._project, read)

    async def count_runs(self, wanted: RunFilter) -> RunHistogram:
        """Count the matching runs."""

        def read(connection: SyncConnection) -> RunHistogram:
            listing, back_to = self._listing(connection, wanted, None)
            histogram = read_histogram(connection, listing, wanted)
            return replace(histogram, counted_back_to=back_to or histogram.counted_back_to)

        return await in_snapshot(self._project, read)

    async def read_facets(self, wanted: RunFilter) -> RunFacets:
        """Count the values that the newest matching runs have."""

        def read(connection: SyncConnection) -> RunFacets:
            listing, back_to = self._listing(connection, wanted, None)
            facets = read_facets(connection, listing, wanted)
            facets.counted_back_to = back_to or facets.counted_back_to
            return facets

        return await in_snapshot(self._project, read)

    def _listing(
        self, connection: SyncConnection, wanted: RunFilter, cursor: str | None
    ) -> tuple[Listing, datetime | None]:
        """Return the listing of a filter, and the time back to which its search examined runs."""
        among, back_to = None, None
        if wanted.q is not None:
            among, back_to = FoundRuns(connection, self._search, self._project_id, wanted).heads()
        spread = standing_of_sync(connection).is_spread
        listing = list_of_runs(wanted, self._project_id, cursor, is_spread=spread, among=among)
        return listing, back_to

    async def list_tool_calls(
        self, wanted: ToolCallFilter, limit: int, cursor: str | None
    ) -> Page[ToolCallPreview]:
        """Return a page of tool calls."""
        listing = list_of_tool_calls(wanted, self._project_id, cursor)
        return await in_snapshot(
            self._project, lambda c: read_page(c, ToolCallPreview, _PREVIEW, listing, limit)
        )

    async def list_conversations(
        self, wanted: ConversationFilter, limit: int, cursor: str | None
    ) -> Page[Conversation]:
        """Return a page of conversations."""
        project_id = self._project_id

        def read(connection: SyncConnection) -> Page[Conversation]:
            found, up_to = None, None
            if wanted.q is not None:
                runs = RunFilter(q=wanted.q, subject=wanted.subject)
                found, _ = FoundRuns(connection, self._search, project_id, runs).heads()
                up_to = self._search.up_to(project_id)
            page = read_conversations(
                connection, project_id, wanted, limit, cursor, found_runs=found
            )
            return replace(page, indexed_up_to=up_to)

        return await in_snapshot(self._project, read)

    async def read_conversation(self, session_id: str, limit: int, cursor: str | None) -> TurnsPage:
        """Return a conversation with a page of its turns."""
        return await in_snapshot(
            self._project, lambda c: read_turns(c, self._project_id, session_id, limit, cursor)
        )

    async def find_turn(self, root_plan_id: UUID) -> TurnPlace:
        """Return the place of a run in its conversation."""
        return await in_snapshot(
            self._project, lambda c: find_turn(c, self._project_id, root_plan_id)
        )

    async def read_run(self, root_plan_id: UUID) -> RunPreview:
        """Return a run with its totals."""
        parameters = {"project_id": self._project_id, "run": root_plan_id}

        def read(connection: SyncConnection) -> RunPreview:
            runs = select(connection, Run, _RUN, parameters)
            previews = read_run_previews(connection, self._project_id, runs)
            return _only("run", root_plan_id, previews)

        return await in_snapshot(self._project, read)

    async def read_plan(self, plan_id: UUID) -> PlanWithOpener:
        """Return a plan and the call that opened it."""

        def read(connection: SyncConnection) -> PlanWithOpener:
            plan = self._one(connection, PlanExecutionRecord, plan_id)
            opener = self._in_run(connection, ActToolInfo, plan.root_plan_id, [plan.tool_call_id])
            return PlanWithOpener(plan, opener[0] if opener else None)

        return await in_snapshot(self._project, read)

    async def read_tree(
        self, plan_id: UUID, payloads: Payloads, *, all_parts: bool = True
    ) -> TreeRows:
        """Return the rows of a plan and everything below it."""

        def read(connection: SyncConnection) -> TreeRows:
            return read_tree(connection, self._project_id, plan_id, payloads, all_parts=all_parts)

        return await in_snapshot(self._project, read)

    async def read_messages(self, root_plan_id: UUID) -> dict[UUID, str]:
        """Return the input messages of a run's model calls, by think-act id."""
        parameters = {"project_id": self._project_id, "run": root_plan_id}
        return dict(await fetched(self._project, _MESSAGES, parameters))

    async def read_message_bytes(self, root_plan_id: UUID) -> int:
        """Return the total size of a run's input messages in bytes."""
        parameters = {"project_id": self._project_id, "run": root_plan_id}
        [(size,)] = await fetched(self._project, _MESSAGE_BYTES, parameters)
        return int(size)

    async def read_revision(self, kind: Kind, record_id: UUID) -> Revision:
        """Return the revision of a record's run."""
        return await in_snapshot(
            self._project, lambda c: read_run_revision(c, self._project_id, kind, record_id)
        )

    async def read_revisions(self, root_plan_ids: Collection[UUID]) -> dict[UUID, int]:
        """Return the revisions of runs."""
        return await in_snapshot(
            self._project, lambda c: read_run_revisions(c, self._project_id, list(root_plan_ids))
        )

    async def read_changes(self, root_plan_id: UUID, after: int, limit: int) -> RunChanges:
        """Return the changes of a run since the revision `after`."""
        return await in_snapshot(
            self._project,
            lambda c: read_run_changes(c, self._project_id, root_plan_id, after, limit),
        )

    async def read_think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return one think-act."""

        def read(connection: SyncConnection) -> ThinkActRecord:
            think_act = self._one(connection, ThinkActRecord, think_act_id)
            if think_act.offered_tools is None and think_act.offered_tools_from is not None:
                holders = self._in_run(
                    connection,
                    ThinkActRecord,
                    think_act.root_plan_id,
                    [think_act.offered_tools_from],
                )
                think_act.offered_tools = holders[0].offered_tools if holders else None
            return think_act

        return await in_snapshot(self._project, read)

    async def read_tool_call(self, tool_call_id: UUID) -> ToolCallWithLineage:
        """Return one call with its lineage."""

        def read(connection: SyncConnection) -> ToolCallWithLineage:
            call = self._one(connection, ActToolInfo, tool_call_id)
            parameters = {
                "project_id": self._project_id,
                "run": call.root_plan_id,
                "call": tool_call_id,
            }
            above = self._read_above(connection, parameters)
            sub_plans = select(connection, PlanExecutionRecord, _SUB_PLANS, parameters)
            return ToolCallWithLineage(call, path_down_to(call, above), sub_plans)

        return await in_snapshot(self._project, read)

    async def read_whole_run(self, root_plan_id: UUID, *, with_projected: bool = True) -> WholeRun:
        """Return the records of a run."""
        return await in_snapshot(
            self._project,
            lambda c: read_whole_run(
                c, self._project_id, root_plan_id, with_projected=with_projected
            ),
        )

    async def find_records(self, reference: str, *, with_runs: bool = False) -> list[RecordMatch]:
        """Return the records that an id, a handle or a provider's call id may mean."""
        reference = reference.strip()

        def read(connection: SyncConnection) -> list[RecordMatch]:
            found = self._matches(connection, reference)
            if not with_runs:
                return found
            ids = [match.root_plan_id for match in found]
            parameters = {"project_id": self._project_id, "runs": ids}
            runs = select(connection, Run, _RUNS, parameters)
            previews = {
                each.root_plan_id: each
                for each in read_run_previews(connection, self._project_id, runs)
            }
            return [replace(match, run=previews.get(match.root_plan_id)) for match in found]

        return await in_snapshot(self._project, read)

    def _matches(self, connection: SyncConnection, reference: str) -> list[RecordMatch]:
        parameters: dict[str, Any] = {"project_id": self._project_id, "id": reference}
        query = _BY_PROVIDER_ID
        with suppress(ValueError):
            parameters["id"] = UUID(reference)
            query = _BY_ANY_ID
        if span := _SPAN.fullmatch(reference.lower()):
            record = None
            with suppress(RecordNotFound):
                of_run = (connection, self._project_id, UUID(span[1]), None)
                record = read_span_records(*of_run)[0].record_of_id(bytes.fromhex(span[2]))
            if record is None:
                return []
            parameters["id"] = record[1]
            query = _BY_ANY_ID
        if handle := _HANDLE.fullmatch(reference.lower()):
            start = handle[1][::-1]
            parameters |= {"from": start, "to": start + "g"}  # the digit after f
            query = BY_HANDLE
        rows = connection.execute(query, parameters).fetchall()
        return [RecordMatch(Kind(kind), *found) for kind, *found in rows]

    async def read_record(self, kind: Kind, record_id: UUID) -> AnyRecord:
        """Return a complete record."""
        return await in_snapshot(self._project, lambda c: self._one(c, RECORDS[kind], record_id))

    async def find_runs_like(self, record_id: UUID) -> list[UUID]:
        """Return the runs that may contain a record, judging by the first bytes of its id."""
        values = [self._project_id, *run_ids_like(record_id)]
        rows = await fetched(self._project, _RUNS_LIKE, values)
        return [run_id for (run_id,) in rows]

    async def list_span_parts(
        self, root_plan_id: UUID, *, with_sessions: bool = False
    ) -> list[SpanPart]:
        """Return the parts of a run's stored spans and log records."""

        def read(connection: SyncConnection) -> list[SpanPart]:
            _source_of_run(connection, {"project_id": self._project_id, "run": root_plan_id})
            return list_parts(
                connection, self._project_id, root_plan_id, with_sessions=with_sessions
            )

        return await in_snapshot(self._project, read)

    async def read_span_part(
        self, part: SpanPart, span_ids: Collection[bytes] | None = None
    ) -> Contents | None:
        """Return the spans and log records of a part."""
        return await in_snapshot(
            self._project, lambda c: read_part(c, self._project_id, part, span_ids)
        )

    async def read_span_records(
        self, root_plan_id: UUID, record_id: UUID | None = None
    ) -> tuple[SpanRecords, set[bytes] | None]:
        """Return the record of each span of a run, and the ids of the spans of one record."""
        return await in_snapshot(
            self._project,
            lambda c: read_span_records(c, self._project_id, root_plan_id, record_id),
        )

    async def read_leases(self, root_plan_id: UUID) -> list[Lease]:
        """Return the leases of a run's recorders."""

        def read(connection: SyncConnection) -> list[Lease]:
            read_run_revision(connection, self._project_id, Kind.RUN, root_plan_id)
            return read_leases(connection, self._project_id, root_plan_id)

        return await in_snapshot(self._project, read)

    async def read_tool_stats(self, period: TimeRange, name: str | None = None) -> ToolStatsPage:
        """Return the statistics of each tool."""
        return await in_snapshot(
            self._project, lambda c: read_stats_of_tools(c, self._project_id, period, name)
        )

    async def read_overview(self, period: TimeRange, wanted: OverviewFilter) -> Overview:
        """Return the figures of a period, and of the period before it."""
        return await in_snapshot(
            self._project, lambda c: read_overview(c, self._project_id, period, wanted)
        )

    async def read_spend(
        self, period: TimeRange, by: str, wanted: OverviewFilter = EVERYTHING
    ) -> list[SpendOf]:
        """Return what model calls cost, by `model`, `agent`, `service`, `user` or `day`."""
        return await in_snapshot(
            self._project, lambda c: read_spend(c, self._project_id, period, by, wanted)
        )

    async def read_tool_history(self, name: str, period: TimeRange) -> ToolHistory:
        """Return the statistics of a tool over time."""
        return await in_snapshot(
            self._project, lambda c: read_history_of_tool(c, self._project_id, name, period)
        )

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the requests and answers of runs that have ended."""
        parameters = {"project_id": self._project_id, "runs": list(root_plan_ids)}
        rows = await fetched(self._project, _EXCHANGES, parameters)
        exchanges = {row[0]: Exchange(*row) for row in rows}
        return [exchanges[run_id] for run_id in root_plan_ids if run_id in exchanges]

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return the runs whose cancellation or deletion was requested."""
        values = [self._project_id, list(root_plan_ids)]
        rows = await fetched(self._project, _CANCEL_REQUESTS, values)
        return {run_id for (run_id,) in rows}

    async def check(self) -> None:
        """Check that the database answers and has the schema that this version needs."""
        checking = asyncio.create_task(self._check())
        # Not `asyncio.timeout`: the driver waits for a frozen server even when it is cancelled.
        await asyncio.wait({checking}, timeout=2 * ANSWER_SECONDS)
        if not checking.done():
            self._given_up.add(checking)
            checking.add_done_callback(self._given_up.discard)
            checking.cancel()
            raise StoreUnavailable()
        checking.result()

    async def _check(self) -> None:
        with store_errors():
            async with pooled_connection(self._project.pool) as connection:
                await check_schema(connection)
                await check_workers(connection)

    def _one(self, connection: SyncConnection, record: type[P], record_id: UUID) -> P:
        """Return the record with an id.

        If several runs contain such a record, a record that is no placeholder is preferred.
        """
        parameters = {"id": record_id, "project_id": self._project_id}
        rows = select(connection, record, _BY_ID[record], parameters)
        return _only(KIND_WORDS[KINDS[record]], record_id, rows)

    def _in_run(
        self,
        connection: SyncConnection,
        record: type[P],
        run_id: UUID,
        record_ids: Sequence[UUID | None],
    ) -> list[P]:
        parameters = {"project_id": self._project_id, "run": run_id, "ids": list(record_ids)}
        return select(connection, record, _BY_IDS_IN_RUN[record], parameters)

    def _read_above(
        self, connection: SyncConnection, parameters: dict[str, Any]
    ) -> dict[RecordReference, AnyRecord]:
        """Return all ancestors of a call. Sends one query for the ids, and one for each kind."""
        cursor = connection.execute(_ABOVE, parameters)
        ids: dict[Kind, list[UUID]] = {kind: [] for kind in KINDS.values()}
        for kind, record_id in cursor.fetchall():
            ids[Kind(kind)].append(record_id)
        ancestors: dict[RecordReference, AnyRecord] = {}
        for record, kind in KINDS.items():
            for each in self._in_run(connection, record, parameters["run"], ids[kind]):
                ancestors[kind, getattr(each, ID_FIELDS[kind])] = each
        return ancestors


def _only(words: str, record_id: UUID, rows: list[R]) -> R:
    if not rows:
        raise RecordNotFound(words, record_id)
    return rows[0]
