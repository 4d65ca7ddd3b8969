"""Conversations: their figures, derived from the runs of a session, and pages of them.

The linker writes the figures after it has visited runs of a session, in the same transaction. So
the figures of a run that is up to date (`run.is_linked`) are, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

import orjson
from psycopg import RawCursor
from psycopg.rows import dict_row

from tracer.errors import RecordNotFound
from tracer.records import Run
from tracer.records.pages import (
    PREVIEW_CHARACTERS,
    TURN_CHARACTERS,
    Conversation,
    ConversationCursor,
    Cursor,
    Page,
    RunPreview,
    Turn,
    TurnPlace,
    TurnsPage,
    UsedTool,
    moment_of,
)
from tracer.records.record_classes import Totals
from tracer.storage.postgres.lists import MOST_SORTED, Listing, page_query, read_run_previews
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rows import check_status, columns, select
from tracer.storage.postgres.run_tables import shown_status
from tracer.storage.postgres.tables import (
    ALWAYS,
    IS_FAILED,
    IS_HEAD,
    RUN_NOT_DELETED,
    START,
    column_type,
    is_one_of,
    is_text,
)
from tracer.store import ConversationFilter
from tracer.text import beginning

Ask = Callable[..., list[tuple[Any, ...]]]
"""Returns the rows of a statement, which takes its values as $1, $2, ..."""

CONVERSATIONS_LOCK_KEY = "hashtextextended('conversation', %s)"
"""The key of the advisory lock under which a project's conversations are computed and deleted. So
none is stored that was computed before one of its runs was deleted."""

_IS_TURN = f"{RUN_NOT_DELETED} AND {IS_HEAD} AND is_agent_work"
"""A turn is a piece of work: a run that continues no other one, with the runs that continue it."""

_TOTALS = tuple(Totals.model_fields)
_LATEST = "at DESC, turn_id DESC"


def _first(column: str, order: str) -> str:
    """Return the SQL of a column of the first turn. Only turns have a status."""
    return f"(array_agg({column} ORDER BY {order}) FILTER (WHERE status IS NOT NULL))[1]"


def _distinct(column: str) -> str:
    return f"coalesce(array_agg(DISTINCT {column}) FILTER (WHERE {column} IS NOT NULL), '{{}}')"


_VALUES = f"whole_status, {START} AS at, finished_at, subject, agent_name, {', '.join(_TOTALS)}"

# The coordinator of Citus groups the rows: the runs of a session are on several shards.
FIGURES = f"""
WITH turn AS MATERIALIZED (
    SELECT session_id, coalesce(whole_status, {shown_status("run")}) AS status,
        root_plan_id AS turn_id, {_VALUES}
    FROM run WHERE project_id = $1 AND {is_one_of("session_id", "$2")} AND {_IS_TURN}
), part AS MATERIALIZED (
    SELECT head_id, {_VALUES} FROM run WHERE project_id = $1 AND {RUN_NOT_DELETED} AND head_id =
        ANY(ARRAY(SELECT turn_id FROM turn WHERE whole_status IS NOT NULL))
), piece AS (
    SELECT * FROM turn UNION ALL
    SELECT session_id, NULL, part.* FROM part JOIN turn ON turn_id = head_id
)
SELECT session_id, {_first("turn_id", "at, turn_id")}, {_first("turn_id", _LATEST)},
    {_first("status", _LATEST)}, {_distinct("status")}, count(status),
    count(*) FILTER (WHERE status IN ('unknown', 'pending', 'running')),
    count(*) FILTER (WHERE status = 'failed'), min(at), max(greatest(at, finished_at)),
    {_distinct("subject")}, {_distinct("agent_name")},
    {", ".join(f"sum({name}){'' if name == 'cost_usd' else '::bigint'}" for name in _TOTALS)}
FROM piece GROUP BY session_id"""
"""Return the figures of the sessions $2 that have a turn."""

_FIGURES = (
    *("status", "statuses", "turns", "open_turns", "failed_turns"),
    *("first_at", "last_at", "subjects", "agents"),
    *_TOTALS,
)

_READ = PREVIEW_CHARACTERS + 1

TEXTS = f"""
SELECT coalesce(run.head_id, run.root_plan_id), run.root_plan_id,
    left(coalesce(nullif(plan.user_request, ''), run.title), {_READ}),
    nullif(left(plan.summary, {_READ}), '')
FROM run LEFT JOIN plan_execution_record AS plan ON plan.project_id = run.project_id
    AND plan.root_plan_id = run.root_plan_id AND plan.plan_id = run.root_plan_id
WHERE run.project_id = $1 AND run.deleted_at IS NULL AND NOT run.is_inside
    AND (run.root_plan_id = ANY($2::uuid[]) OR run.head_id = ANY($2::uuid[]))
ORDER BY CASE WHEN run.started_at IS NOT NULL THEN run.started_at ELSE run.recorded_at END,
    run.root_plan_id"""
"""Return the requests and answers of the turns $2 and of the runs that continue them."""


def key_of(session_id: str) -> UUID:
    """Return `conversation.session_key`: a hash, because an index cannot contain a long id."""
    return UUID(bytes=blake2b(session_id.encode(), digest_size=16).digest())


def compute_conversations(
    ask: Ask, project_id: int, sessions: Collection[str]
) -> list[Conversation]:
    """Return the conversations of those sessions that have a turn, computed from their runs."""
    found = ask(FIGURES, project_id, sorted(sessions))
    ends = {turn for _, first, last, *_ in found for turn in (first, last)}
    questions: dict[UUID, str | None] = {}
    answers: dict[UUID, str | None] = {}
    for head, run_id, request, answer in ask(TEXTS, project_id, sorted(ends)) if ends else ():
        if head == run_id:
            questions[head] = request
        answers[head] = answer or answers.get(head)
    return [
        Conversation(
            session_id=session_id,
            question=_preview(questions.get(first)),
            answer=_preview(answers.get(last)),
            **dict(zip(_FIGURES, figures, strict=True)),
        )
        for session_id, first, last, *figures in found
    ]


def _preview(text: str | None) -> str | None:
    return None if text is None else beginning(text, PREVIEW_CHARACTERS)


# --- Write: by the linker, which holds the project's lock.

KEPT_MOVES = timedelta(hours=1)
"""For how long a list keeps the order of its first page."""
MOST_MOVES = 100
"""How many moves of a conversation are stored at most."""

NEVER = datetime(9000, 1, 1, tzinfo=UTC)
"""In `moves`: the conversation did not exist before."""

LOCK = f"SELECT pg_advisory_xact_lock({CONVERSATIONS_LOCK_KEY % '$1::integer'})"

READ_MOVES = """
SELECT session_key, last_at, moved_at, moves FROM conversation
WHERE project_id = $1 AND session_key = ANY($2::uuid[])"""

READ_MOMENT = """
SELECT statement_timestamp(), (SELECT max(moved_at) FROM conversation WHERE project_id = $1)"""

_COLUMNS = ("session_key", *Conversation.model_fields, "moved_at", "moves")

STORE = f"""
INSERT INTO conversation (project_id, {", ".join(_COLUMNS)})
SELECT $1, {", ".join(_COLUMNS)} FROM json_to_recordset($2::json)
    AS incoming ({", ".join(f"{name} {column_type('conversation', name)}" for name in _COLUMNS)})
ON CONFLICT (session_key, project_id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[2:])}"""

REMOVE = "DELETE FROM conversation WHERE project_id = $1 AND session_key = ANY($2::uuid[])"


def write_conversations(ask: Ask, project_id: int, sessions: Collection[str]) -> None:
    """Compute the conversations of sessions, and store them in the caller's transaction.

    Citus writes each in its own shard.
    """
    if not sessions:
        return
    ask(LOCK, project_id)
    computed = compute_conversations(ask, project_id, sessions)
    by_key = {key_of(each.session_id): each for each in computed}
    stored = {key: row for key, *row in ask(READ_MOVES, project_id, list(map(key_of, sessions)))}
    if gone := sorted(stored.keys() - by_key.keys()):
        ask(REMOVE, project_id, gone)
    if not by_key:
        return
    [(now, last_moment)] = ask(READ_MOMENT, project_id)
    moment = now if last_moment is None else max(now, last_moment + timedelta(microseconds=1))
    rows = []
    for key, conversation in sorted(by_key.items()):
        last_at, moved_at, moves = stored.get(key, (NEVER, moment, []))
        if last_at != conversation.last_at:
            moves = [*_recent(moves, moment), moment, last_at]
            moved_at = moment
        row = {"session_key": key, "moved_at": moved_at, "moves": moves}
        rows.append(conversation.model_dump() | row)
    ask(STORE, project_id, orjson.dumps(rows, default=str).decode())


def _recent(moves: Sequence[datetime], now: datetime) -> list[datetime]:
    """Return the pairs of `moves` that a list may still need."""
    pairs = zip(moves[::2], moves[1::2], strict=True)
    recent = [pair for pair in pairs if pair[0] > now - KEPT_MOVES][1 - MOST_MOVES :]
    return [each for pair in recent for each in pair]


# --- The list.

MOST_EXAMINED = 5_000
"""The most conversations that a page examines if its filter has criteria without an index."""
MOST_MOVED = 10_000
"""The most conversations that changed since the first page and are read for another page."""

_MOVED = "moved_at > %(moment)s"
_LAST_MOMENT = "SELECT max(moved_at) FROM conversation WHERE project_id = %(project_id)s"

_SESSIONS_OF_SUBJECT = f"""
SELECT DISTINCT session_id FROM (
    SELECT session_id FROM run
    WHERE project_id = %(project_id)s AND {is_text("subject", "subject")} AND {RUN_NOT_DELETED}
    LIMIT {MOST_SORTED + 1}
) AS found WHERE session_id IS NOT NULL"""

_SESSIONS_OF_RUNS = f"""
SELECT DISTINCT session_id FROM run
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND {RUN_NOT_DELETED}
    AND session_id IS NOT NULL"""


def read_conversations(
    connection: SyncConnection,
    project_id: int,
    wanted: ConversationFilter,
    limit: int,
    cursor: str | None,
    *,
    found_runs: Sequence[UUID] | None = None,
) -> Page[Conversation]:
    """Return a page of conversations, latest activity first.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The project.
        wanted: The criteria.
        limit: The largest number of items.
        cursor: The cursor of the previous page.
        found_runs: The turns that a search found; None: all.
    """
    check_status(wanted.status)
    after = None if cursor is None else ConversationCursor.decode(cursor)
    listing = Listing("conversation", "session_key", MOST_EXAMINED, "last_at")
    listing.along.add("project_id = %(project_id)s", project_id=project_id)
    if found_runs is not None:
        sessions = connection.execute(
            _SESSIONS_OF_RUNS, {"project_id": project_id, "runs": list(found_runs)}
        )
        _only(listing, "found", sessions)
    if wanted.subject is not None:
        values = {"project_id": project_id, "subject": wanted.subject}
        sessions = connection.execute(_SESSIONS_OF_SUBJECT, values)
        if sessions.rowcount <= MOST_SORTED:
            _only(listing, "of_subject", sessions)
    for column, value in (
        ("statuses", wanted.status),
        ("agents", wanted.agent),
        ("subjects", wanted.subject),
    ):
        listing.wanted.add(f"%({column})s = ANY({column})", **{column: value})
    moved = replace(listing, along=replace(listing.along, conditions=[*listing.along.conditions]))
    listing.along.add("last_at >= %(since)s", since=wanted.since)
    listing.along.add("last_at < %(until)s", until=wanted.until)
    if after is not None:
        edge = {"edge_at": after.last_at, "edge": after.key, "moment": after.moment}
        listing.along.add("(last_at, session_key) < (%(edge_at)s, %(edge)s)", **edge)
        listing.along.add(f"NOT {_MOVED}")

    def rows(of: Listing, most: int) -> list[dict[str, Any]]:
        query = page_query(", ".join(_COLUMNS), of, is_spread=False)
        found = connection.cursor(row_factory=dict_row)
        return found.execute(query, {**of.values, "limit": most}).fetchall()

    items = [(row["last_at"], row["session_key"], row) for row in rows(listing, limit + 1)]
    last: tuple[datetime, UUID] | None = None
    """The last examined row, if the limit was reached."""
    if listing.wanted.conditions and len(items) <= limit:
        query = f"SELECT last_at, session_key {listing.rows} LIMIT 1 OFFSET {MOST_EXAMINED - 1}"
        last = connection.execute(query, listing.row_values).fetchone()
    if after is None:
        [(moment,)] = connection.execute(_LAST_MOMENT, {"project_id": project_id})
    else:
        moment = after.moment
        moved.along.add(_MOVED, moment=moment)
        end = after.last_at, after.key
        earlier = (
            (_as_of(row, moment), row["session_key"], row) for row in rows(moved, MOST_MOVED)
        )
        items += [
            item
            for item in earlier
            if item[:2] < end
            and (wanted.since is None or item[0] >= wanted.since)
            and (last is None or item[:2] >= last)
        ]
        items.sort(key=lambda item: item[:2], reverse=True)
    shown = [Conversation(**row) for *_, row in items[:limit]]
    edge_of_page = items[limit - 1][:2] if len(items) > limit else last
    if edge_of_page is None:
        return Page(shown, None)
    next_cursor = ConversationCursor(moment, *edge_of_page).encode()
    return Page(shown, next_cursor, last[0] if edge_of_page is last else None)


def _only(listing: Listing, name: str, sessions: Iterable[tuple[str]]) -> None:
    keys = [key_of(session_id) for (session_id,) in sessions]
    listing.along.add(f"session_key = ANY(%({name})s)", **{name: keys})


def _as_of(row: Mapping[str, Any], moment: datetime) -> datetime:
    """Return when a conversation was last active, as it was known at `moment`."""
    moves = row["moves"]
    later = (value for at, value in zip(moves[::2], moves[1::2], strict=True) if at > moment)
    at: datetime = next(later, row["last_at"])
    return at


# --- The turns of one conversation.

_TURNS = f"project_id = %(project_id)s AND {is_text('session_id', 'session')} AND {_IS_TURN}"

_PAGE_OF_TURNS = f"""
SELECT {columns(Run)} FROM run
WHERE {_TURNS} AND ({START}, root_plan_id) > (%(after_at)s, %(after)s)
ORDER BY {START}, root_plan_id LIMIT %(limit)s"""

_TOOLS = f"""
SELECT call.root_plan_id, name, count(*),
    count(*) FILTER (WHERE {IS_FAILED} AND opened.tool_call_id IS NULL)
FROM act_tool_info AS call LEFT JOIN (
    SELECT DISTINCT root_plan_id, tool_call_id FROM plan_execution_record
    WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)
        AND tool_call_id IS NOT NULL AND {IS_FAILED}
) AS opened ON opened.root_plan_id = call.root_plan_id
    AND opened.tool_call_id = call.tool_call_id
WHERE project_id = %(project_id)s AND call.root_plan_id = ANY(%(runs)s) AND {ALWAYS}
GROUP BY call.root_plan_id, name"""

_AGENTS = f"""
SELECT root_plan_id, agent_name, min({START}) FROM plan_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND agent_name IS NOT NULL
GROUP BY root_plan_id, agent_name"""

_RUNS_OF_TURNS = f"""
SELECT root_plan_id, coalesce(head_id, root_plan_id) FROM run
WHERE project_id = %(project_id)s AND {RUN_NOT_DELETED}
    AND (root_plan_id = ANY(%(turns)s) OR head_id = ANY(%(turns)s))"""

_PLACE = f"""
SELECT turn, turns, previous_id, next_id FROM (
    SELECT root_plan_id, row_number() OVER in_order AS turn, count(*) OVER () AS turns,
        lag(root_plan_id) OVER in_order AS previous_id,
        lead(root_plan_id) OVER in_order AS next_id
    FROM run WHERE {_TURNS} WINDOW in_order AS (ORDER BY {START}, root_plan_id)
) AS turn WHERE root_plan_id = %(run)s"""

_HEAD = f"""
SELECT head.root_plan_id, head.session_id FROM run AS head
WHERE head.project_id = %(project_id)s AND head.{RUN_NOT_DELETED} AND head.root_plan_id = (
    SELECT coalesce(head_id, root_plan_id) FROM run
    WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND {RUN_NOT_DELETED})"""


def asking(connection: SyncConnection) -> Ask:
    """Return a function that executes statements which take their values as $1, $2, ..."""

    def ask(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return RawCursor(connection).execute(statement, values, binary=True).fetchall()

    return ask


def read_turns(
    connection: SyncConnection, project_id: int, session_id: str, limit: int, cursor: str | None
) -> TurnsPage:
    """Return a conversation, as its runs are now, with a page of its turns, earliest first.

    Raises:
        RecordNotFound: It has no turn.
    """
    after = Cursor(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
    if cursor is not None:
        after = Cursor.decode(cursor)
    conversations = compute_conversations(asking(connection), project_id, [session_id])
    if not conversations:
        raise RecordNotFound("session", session_id)
    values = {"project_id": project_id, "session": session_id, "limit": limit + 1}
    values |= {"after_at": after.moment, "after": after.record_id}
    runs = select(connection, Run, _PAGE_OF_TURNS, values)
    has_more, runs = len(runs) > limit, runs[:limit]
    previews = read_run_previews(connection, project_id, runs, characters=TURN_CHARACTERS)
    turns = _with_work(connection, project_id, previews)
    edge = Cursor(moment_of(runs[-1]), runs[-1].root_plan_id).encode() if has_more else None
    return TurnsPage(conversations[0], turns, edge)


def _with_work(
    connection: SyncConnection, project_id: int, previews: Sequence[RunPreview]
) -> list[Turn]:
    values: dict[str, Any] = {"project_id": project_id}
    values["turns"] = [each.root_plan_id for each in previews]
    turn_of: dict[UUID, UUID] = dict(connection.execute(_RUNS_OF_TURNS, values).fetchall())
    values["runs"] = [*turn_of]
    tools: dict[UUID, dict[str | None, UsedTool]] = defaultdict(dict)
    for run_id, name, calls, failed in connection.execute(_TOOLS, values):
        used = tools[turn_of[run_id]].setdefault(name, UsedTool(name=name, calls=0, failed=0))
        used.calls += calls
        used.failed += failed
    agents: dict[UUID, dict[str, None]] = defaultdict(dict)
    by_start = sorted(connection.execute(_AGENTS, values), key=lambda row: (row[2], row[1]))
    for run_id, name, _ in by_start:
        agents[turn_of[run_id]][name] = None
    return [
        Turn(
            **{name: getattr(each, name) for name in _SAME},
            question=each.request,
            status=each.shown_status,
            agents=[*agents[each.root_plan_id]],
            tools=sorted(
                tools[each.root_plan_id].values(), key=lambda tool: (-tool.calls, tool.name or "")
            ),
        )
        for each in previews
    ]


_SAME = Turn.model_fields.keys() & RunPreview.model_fields.keys() - {"status"}


def find_turn(connection: SyncConnection, project_id: int, root_plan_id: UUID) -> TurnPlace:
    """Return the place of a run in its conversation.

    Raises:
        RecordNotFound: The run does not exist or was deleted.
    """
    values = {"project_id": project_id, "run": root_plan_id}
    head = connection.execute(_HEAD, values).fetchone()
    if head is None:
        raise RecordNotFound("run", root_plan_id)
    values["run"], values["session"] = head
    place = connection.execute(_PLACE, values).fetchone() if head[1] is not None else None
    names = ("turn", "turns", "previous_id", "next_id")
    return TurnPlace(
        session_id=head[1], **dict(zip(names, place or (1, 1, None, None), strict=True))
    )
