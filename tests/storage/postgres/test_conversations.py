"""The figures of conversations equal their runs, whatever happened, and lists keep their order."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from psycopg import AsyncRawCursor

from tests.citus_databases import on_one_postgres
from tests.contract.moments import START as BEGIN
from tests.contract.moments import Moments
from tests.profiles import scaled
from tests.storage.postgres.deletions import rows
from tests.storage.postgres.work_histories import (
    Change,
    WorkHistory,
    histories,
    histories_of_prompts,
)
from tests.telling_runs import failing_run
from tracer.records import new_id
from tracer.records.events import Event
from tracer.records.pages import Conversation
from tracer.records.record_classes import Totals
from tracer.storage.postgres import Pool, ProjectPool, conversations, linker
from tracer.storage.postgres.conversations import key_of
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.run_tables import shown_status
from tracer.storage.postgres.session import in_project
from tracer.storage.postgres.tables import START
from tracer.store import ConversationFilter

OPEN = {"unknown", "pending", "running"}


@settings(max_examples=scaled(50))
@given(history=histories | histories_of_prompts)
async def test_conversations_equal_their_runs_after_any_history(
    pool: Pool, history: list[Change]
) -> None:
    project = await WorkHistory.new(pool)

    await project.happens(history)

    assert await stored(project) == await expected(project)


async def stored(project: WorkHistory) -> dict[str, dict[str, Any]]:
    """Return the conversations of a project as the table has them."""
    names = list(Conversation.model_fields)
    query = f"SELECT session_key, {', '.join(names)} FROM conversation WHERE project_id = %s"
    found = {}
    for key, *values in await rows(project.pool, query, project.project.project_id):
        conversation = dict(zip(names, values, strict=True))
        assert key == key_of(conversation["session_id"])
        found[conversation["session_id"]] = conversation
    return found


_TOTALS = list(Totals.model_fields)
_RUNS = f"""SELECT session_id, coalesce(head_id, run.root_plan_id), run.root_plan_id,
    {START.replace("started_at", "run.started_at").replace("recorded_at", "run.recorded_at")},
    run.finished_at, coalesce(whole_status, {shown_status("run")}), is_inside, subject,
    run.agent_name, is_agent_work, plan.user_request, run.title, plan.summary,
    {", ".join(_TOTALS)}
    FROM run LEFT JOIN plan_execution_record AS plan ON plan.project_id = run.project_id
        AND plan.root_plan_id = run.root_plan_id AND plan.plan_id = run.root_plan_id
    WHERE run.project_id = %s AND deleted_at IS NULL"""


async def expected(project: WorkHistory) -> dict[str, dict[str, Any]]:
    """Return the same, from the runs and their links alone."""
    names = [
        *("session", "head", "id", "at", "end", "status", "is_inside", "subject", "agent"),
        *("is_work", "request", "title", "summary", *_TOTALS),
    ]
    found = await rows(project.pool, _RUNS, project.project.project_id)
    runs = [dict(zip(names, row, strict=True)) for row in found]
    by_head = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run["at"], run["id"])):
        by_head[run["head"]].append(run)
    turns = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run["at"], run["id"])):
        if run["id"] == run["head"] and run["is_work"] and run["session"] is not None:
            turns[run["session"]].append(run)
    conversations = {}
    for session, heads in turns.items():
        pieces = [run for head in heads for run in by_head[head["id"]]]
        outside = [run for run in by_head[heads[-1]["id"]] if not run["is_inside"]]
        answers = [run["summary"] for run in outside if run["summary"]]
        conversations[session] = {
            "session_id": session,
            "question": heads[0]["request"] or heads[0]["title"],
            "answer": answers[-1] if answers else None,
            "status": heads[-1]["status"],
            "statuses": sorted({head["status"] for head in heads}),
            "turns": len(heads),
            "open_turns": sum(head["status"] in OPEN for head in heads),
            "failed_turns": sum(head["status"] == "failed" for head in heads),
            "first_at": min(run["at"] for run in pieces),
            "last_at": max(max(run["at"], run["end"] or run["at"]) for run in pieces),
            "subjects": sorted({run["subject"] for run in pieces} - {None}),
            "agents": sorted({run["agent"] for run in pieces} - {None}),
        } | {name: sum(run[name] for run in pieces) for name in _TOTALS}
    return conversations


@pytest.fixture
async def project(pool: Pool) -> WorkHistory:
    return await WorkHistory.new(pool)


def reader_of(project: WorkHistory) -> PostgresReader:
    return PostgresReader(project.project)


def turn(session: str, at: int, **more: Any) -> list[Event]:
    """Return the events of a turn that takes a second."""
    run = Moments()
    return [
        run.plan_started(at, session_id=session, **more),
        run.plan_finished(at + 1, summary=f"answer {at}"),
    ]


async def say(project: WorkHistory, session: str, at: int, **more: Any) -> None:
    await project.writer.write(turn(session, at, **more))
    await project.link()


async def pages(
    project: WorkHistory, wanted: ConversationFilter, cursor: str | None, limit: int = 2
) -> list[str]:
    """Return the sessions of a page and of all following pages."""
    found = []
    while True:
        page = await reader_of(project).list_conversations(wanted, limit, cursor)
        found += [each.session_id for each in page.items]
        if (cursor := page.next_cursor) is None:
            return found


ANY = ConversationFilter()


async def test_conversation_that_moves_up_is_neither_repeated_nor_lost(
    project: WorkHistory,
) -> None:
    for number in range(6):
        await say(project, f"s{number}", 10 * number)
    first = await reader_of(project).list_conversations(ANY, 2, None)
    assert [each.session_id for each in first.items] == ["s5", "s4"]

    await say(project, "s5", 200)  # was shown
    await say(project, "s1", 210)  # was not
    await say(project, "s1", 220)  # again
    await say(project, "s3", 5)  # a turn that arrives late moves nothing
    await say(project, "new", 230)

    assert await pages(project, ANY, first.next_cursor) == ["s3", "s2", "s1", "s0"]
    assert await pages(project, ANY, None) == ["new", "s1", "s5", "s4", "s3", "s2", "s0"]


async def test_conversation_that_moves_down_is_neither_repeated_nor_lost(
    project: WorkHistory,
) -> None:
    for number in range(4):
        await say(project, f"s{number}", 10 * number)
    late = turn("s3", 100)
    await project.writer.write(late)
    await project.link()
    first = await reader_of(project).list_conversations(ANY, 1, None)
    assert [each.session_id for each in first.items] == ["s3"]

    await project.writer.deletion.erase_run(late[0].root_plan_id)
    await project.link()

    assert await pages(project, ANY, first.next_cursor) == ["s2", "s1", "s0"]


async def test_pages_of_a_filter_are_the_matching_conversations(project: WorkHistory) -> None:
    for number in range(6):
        user = {"subject": f"u{number % 2}", "agent_name": f"a{number % 3}"}
        await say(project, f"s{number}", 10 * number, **user)
    run = Moments()
    await project.writer.write([run.plan_started(100, session_id="s0", subject="u1")])
    await project.link()

    found = {
        "user": await pages(project, ConversationFilter(subject="u0"), None),
        "both users": await pages(project, ConversationFilter(subject="u1"), None),
        "agent": await pages(project, ConversationFilter(agent="a1"), None),
        "open": await pages(project, ConversationFilter(status="running"), None),
        "none": await pages(project, ConversationFilter(status="failed"), None),
        "time": await pages(
            project,
            ConversationFilter(
                since=BEGIN + timedelta(seconds=11), until=BEGIN + timedelta(seconds=41)
            ),
            None,
        ),
    }

    assert found == {
        "user": ["s0", "s4", "s2"],
        "both users": ["s0", "s5", "s3", "s1"],
        "agent": ["s4", "s1"],
        "open": ["s0"],
        "none": [],
        "time": ["s3", "s2", "s1"],
    }


async def test_run_that_changes_its_session_leaves_the_earlier_one(project: WorkHistory) -> None:
    run = Moments()
    await project.writer.write([run.plan_started(session_id="a")])
    await project.link()
    assert list(await stored(project)) == ["a"]

    await project.writer.write([run.plan_started(session_id="b")])
    await project.link()

    assert list(await stored(project)) == ["b"]


async def test_very_long_session_id_is_a_conversation(project: WorkHistory) -> None:
    session = "s" * 100_000
    await say(project, session, 0)

    page = await reader_of(project).read_conversation(session, 50, None)

    assert [each.answer for each in page.turns] == ["answer 0"]
    assert list(await stored(project)) == [session]


MANY = """
INSERT INTO run (project_id, root_plan_id, status, recorded_at, revision, linked_revision,
    session_id, input_tokens, output_tokens, cost_usd, tool_calls, failed_calls, source)
SELECT 1, gen_random_uuid(), 'succeeded', now(), 1, 1, 's-' || number / 10, 0, 0, 0, 0, 0, 'events'
FROM generate_series(1, 3000) AS number"""


@on_one_postgres
@pytest.mark.parametrize("statement", [conversations.FIGURES, linker.FIND_CLAIMANTS])
async def test_runs_of_sessions_are_found_by_their_index(
    pool: Pool, database_url: str, statement: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(MANY)
        connection.execute("ANALYZE run")
    values = [1, ["s-1", "s-2"], BEGIN, ["k"]][: statement.count("$3") + statement.count("$4") + 2]

    async with in_project(ProjectPool(pool)) as connection:
        cursor = AsyncRawCursor(connection)
        await cursor.execute(f"EXPLAIN {statement}", values)
        plan = [line for (line,) in await cursor.fetchall()]

    assert any("Index Cond" in line and "session_id)::name" in line for line in plan), plan


async def test_equal_session_ids_of_two_projects_are_two_conversations(
    pool: Pool, project: WorkHistory
) -> None:
    other = await WorkHistory.new(pool)
    await say(project, "s", 0, subject="own")
    await say(other, "s", 10, subject="other")
    await say(other, "s", 20, subject="other")

    own = await reader_of(project).read_conversation("s", 50, None)
    listed = await reader_of(project).list_conversations(ANY, 50, None)
    place = await reader_of(other).find_turn(
        (await reader_of(other).read_conversation("s", 50, None)).turns[1].root_plan_id
    )

    assert [each.subject for each in own.turns] == ["own"]
    assert [(each.turns, each.subjects) for each in listed.items] == [(1, ["own"])]
    assert (place.turn, place.turns) == (2, 2)
    await project.writer.deletion.erase_session("s")
    assert len((await reader_of(other).read_conversation("s", 50, None)).turns) == 2
    assert list(await stored(other)) == ["s"]


async def test_deleting_a_session_leaves_nothing_of_it(pool: Pool, project: WorkHistory) -> None:
    for at in (0, 10, 20):
        await say(project, "secret-session", at, user_request="secret question")
    follower = Moments()
    head = (await reader_of(project).read_conversation("secret-session", 1, None)).turns[0]
    await project.writer.write(
        [follower.plan_started(30, session_id="other", follows_runs=(head.root_plan_id,))]
    )
    await project.link()
    await say(project, "kept", 40)

    erasure = await project.writer.deletion.erase_session("secret-session")

    assert (erasure.runs, erasure.left) == (4, 0)
    assert list(await stored(project)) == ["kept"]
    await project.link()
    assert list(await stored(project)) == ["kept"]
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    for (table,) in await rows(pool, tables):
        query = f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE '%%secret %%'"
        assert (table, *(await rows(pool, query))) == (table, (0,))
        query = f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE '%%secret-session%%'"
        assert (table, *(await rows(pool, query))) == (table, (0,))


async def test_erasing_a_user_leaves_no_text_in_conversations_with_others(
    project: WorkHistory,
) -> None:
    await say(project, "s", 0, subject="u", user_request="question of u")
    await say(project, "s", 10, subject="v", user_request="question of v")
    await say(project, "t", 20, subject="u")

    erasure = await project.writer.deletion.erase_subject("u")

    assert erasure.left == 0
    assert await stored(project) == {}
    await project.link()
    left = await stored(project)
    assert list(left) == ["s"]
    assert (left["s"]["question"], left["s"]["subjects"]) == ("question of v", ["v"])


async def test_turns_of_a_conversation_are_paged_in_order(project: WorkHistory) -> None:
    for at in (30, 0, 20, 10, 40):
        await say(project, "s", at)
    reader = reader_of(project)

    turns, cursor, places = [], None, []
    while True:
        page = await reader.read_conversation("s", 2, cursor)
        turns += page.turns
        if (cursor := page.next_cursor) is None:
            break
    for each in turns:
        place = await reader.find_turn(each.root_plan_id)
        places.append((place.turn, place.turns, place.previous_id, place.next_id))

    ids: list[UUID | None] = [None, *(each.root_plan_id for each in turns), None]
    assert [each.answer for each in turns] == [f"answer {at}" for at in (0, 10, 20, 30, 40)]
    assert places == [(number, 5, ids[number - 1], ids[number + 1]) for number in range(1, 6)]


async def test_turn_has_the_names_and_counts_of_its_whole_work(project: WorkHistory) -> None:
    run, part = Moments(), Moments()
    await project.writer.write(
        [
            run.plan_started(session_id="s", agent_name="chief", user_request="Do it"),
            run.step_started(agent_name="chief"),
            run.call_started(name="ask"),
            run.call_started(name="look", tool_call_id=new_id()),
            run.call_finished(5),
            run.sub_plan_started(new_id(), run.call, agent_name="helper"),
            run.plan_finished(9, summary="Begun"),
            part.plan_started(20, agent_name="background", follows_calls=(run.call,)),
            part.step_started(21),
            part.call_started(22, name="look"),
            part.plan_finished(29, summary="Done"),
        ]
    )
    await project.link()

    [found] = (await reader_of(project).read_conversation("s", 50, None)).turns

    assert (found.question, found.answer, found.parts) == ("Do it", "Done", 2)
    assert found.agents == ["chief", "helper", "background"]
    assert [(each.name, each.calls) for each in found.tools] == [("look", 2), ("ask", 1)]


async def test_failure_counts_for_the_tool_in_which_it_began(project: WorkHistory) -> None:
    await project.writer.write(failing_run(session_id="s").events)
    await project.link()

    [turn] = (await reader_of(project).read_conversation("s", 50, None)).turns

    failed = {each.name: each.failed for each in turn.tools}
    assert failed == {
        "ask_bank": 0,
        "ask_ledger": 0,
        "get_invoice": 0,
        "http_get": 1,
        "sql": 0,
    }
