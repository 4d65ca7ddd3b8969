"""What is deleted is gone from every table, at once for readers, in pieces for the database."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.citus_databases import on_one_postgres
from tests.otel.made_traces import made, spans_from
from tests.storage.deletions import left_of, record, rich_run, rows
from tests.storage.stored_spans import (
    LONG_AGO,
    make_pending,
    store_block,
    store_rows,
    store_run,
)
from tests.storage.test_list_queries import nodes
from tests.store_contract.moments import Moments
from tests.trees import read_tree
from tracer.errors import RecordNotFound
from tracer.ids import new_id
from tracer.lineage import Payloads
from tracer.otel.span_fields import root_plan_id
from tracer.project_settings import ProjectSettings
from tracer.storage import burial_statements as sql
from tracer.storage.engine import Pool
from tracer.storage.postgres_deletion import PostgresDeletion
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_sessions import PostgresSessions
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool, in_project
from tracer.storage.rollups import roll_up
from tracer.storage.tables import IS_BURIED
from tracer.store import RunFilter, ToolCallFilter
from tracer.tool_stats import TimeRange
from tracer.tools.hidden import User
from tracer.tools.run_scope import conversation_of

KEEP_ALL = ProjectSettings()


@pytest.mark.parametrize(
    "rows_at_once", [3, *(pytest.param(rows, marks=pytest.mark.thorough) for rows in (1, 1_000))]
)
async def test_nothing_is_left_of_a_deleted_run_in_any_table(pool: Pool, rows_at_once: int) -> None:
    run, events = rich_run()
    await record(pool, *events)
    trace = spans_from(*(made(each, "a tool") for each in range(1, 7)))
    of_spans = root_plan_id(trace[0].trace_id)
    await store_rows(pool, trace)
    for each in (trace[:2], trace[2:]):
        await store_block(pool, each)
    await make_pending(pool, of_spans)
    await rows(
        pool,
        "INSERT INTO removed_record VALUES (1, %s, %s, 'step', 1) RETURNING 1",
        run.root,
        new_id(),
    )
    async for _ in roll_up(ProjectPool(pool)):
        pass
    before = await left_of(pool, [run.root, of_spans])
    assert all(before.values()), f"a table with nothing of the runs: {before}"

    deletion = PostgresDeletion(ProjectPool(pool), rows_at_once=rows_at_once)
    done = [await deletion.erase_run(each) for each in (run.root, of_spans)]

    assert set((await left_of(pool, [run.root, of_spans])).values()) == {0}
    assert [each.left for each in done] == [0, 0]
    assert sum(each.runs for each in done) == 2
    assert sum(each.spans for each in done) == 2 * len(trace)
    named = ("plan_execution_record", "agent_execution_record", "think_act_record", "act_tool_info")
    assert sum(each.records for each in done) == sum(before[table] for table in named)


@pytest.mark.thorough
async def test_what_lies_below_a_run_is_looked_through_for_circles_once(
    pool: Pool, asked: list[str]
) -> None:
    run, events = rich_run(calls=40)
    await record(pool, *events)
    asked.clear()

    deletion = PostgresDeletion(ProjectPool(pool), rows_at_once=10)
    assert (await deletion.erase_run(run.root)).left == 0

    cuts = [each for each in asked if each in map(sql.counting, sql.CUTS)]
    links = 40 + 41  # of plans, and of calls within the batch
    assert len(cuts) <= len(sql.CUTS) * (links // 10 + 1)


@pytest.mark.thorough
@on_one_postgres
async def test_circles_are_looked_for_along_an_index_that_leaves_out_what_is_cut(
    pool: Pool,
) -> None:
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        for cut in sql.CUTS:
            cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) {cut}", GIVEN)
            [[plan]] = await cursor.fetchall()
            conditions = [str(node.get("Index Cond")) for node in nodes(plan[0]["Plan"])]
            assert any("revision > " in each for each in conditions)


async def test_a_tombstone_holds_nothing_of_whom_the_run_was(pool: Pool) -> None:
    run, events = rich_run(subject="p-1", session_id="s-1", title="a secret", tags=["t-1"])
    await record(pool, *events)
    await PostgresDeletion(ProjectPool(pool)).erase_run(run.root)
    [(tombstone,)] = await rows(pool, "SELECT row_to_json(run) FROM run")
    kept = {name for name, value in tombstone.items() if value and name != "recorded_at"}
    assert kept == {
        *("project_id", "root_plan_id", "status", "revision", "source", "is_agent_work"),
        *("deleted_at", "swept_at", "summed_revision", "is_summed"),
    }
    assert tombstone["status"] == "unknown"


@pytest.mark.thorough
async def test_half_a_run_is_shown_to_nobody_and_whoever_prunes_next_deletes_it(
    pool: Pool, reader: PostgresReader, writer: PostgresWriter
) -> None:
    run, events = rich_run(calls=8)
    other, others = rich_run(calls=0)
    await record(pool, *events, *others)
    dying = PostgresDeletion(ProjectPool(pool), rows_at_once=3)
    # As whoever is killed does: it buries, deletes some, and never comes back.
    await dying._bury(sql.THE_RUN, {"run": run.root})
    for _ in range(4):
        assert await dying._sweep(sql.WAITING, None, set()) is not None
    left = await left_of(pool, [run.root])
    assert left["plan_execution_record"] > 1
    assert left["act_tool_info"] > 1

    for read in readings(reader, run):
        with pytest.raises(RecordNotFound):
            await read
    calls = (await reader.list_tool_calls(ToolCallFilter(), 100, None)).items
    assert {call.root_plan_id for call in calls} == {other.root}
    listed = (await reader.list_runs(RunFilter(), 100, None)).items
    assert [each.root_plan_id for each in listed] == [other.root]
    stats = (await reader.read_tool_stats(TimeRange(None, None))).items
    assert {each.name: each.calls for each in stats} == {"batch": 1, "measure": 1}
    assert await reader.read_messages(run.root) == {}
    late = await writer.write([run.call_finished()])
    assert [each.code for each in late.refused] == ["run_deleted"]

    async with aclosing(PostgresDeletion(ProjectPool(pool)).prune(KEEP_ALL)) as pruning:
        swept = [each async for each in pruning]
    assert [each.runs for each in swept] == [1]
    assert set((await left_of(pool, [run.root])).values()) == {0}
    assert (await read_tree(reader, other.root, Payloads.NONE)).plans != []


def readings(reader: PostgresReader, run: Moments) -> list[Any]:
    return [
        reader.read_run(run.root),
        reader.read_plan(run.root),
        read_tree(reader, run.root, Payloads.NONE),
        reader.read_step(run.step),
        reader.read_think_act(run.think_act),
        reader.read_tool_call(run.call),
        reader.read_whole_run(run.root),
        reader.read_spans(run.root),
        reader.read_changes(run.root, 0, 100),
    ]


@pytest.mark.thorough
async def test_a_conversation_s_state_goes_with_its_last_run(pool: Pool) -> None:
    sessions = PostgresSessions(ProjectPool(pool))
    first, second, alone, named = (Moments() for _ in range(4))
    await record(pool, first.plan_started(session_id="s"), second.plan_started(session_id="s"))
    await record(pool, alone.plan_started(), named.plan_started(session_id=str(alone.root)))
    for session in ("s", str(alone.root), "of nobody"):
        for user in (None, User("ann"), User("bob")):
            await sessions.change_state(conversation_of(session, user), {"said": session}, [])
    deletion = PostgresDeletion(ProjectPool(pool))

    async def left_after(run_id: UUID) -> set[str]:
        await deletion.erase_run(run_id)
        query = "SELECT session, count(*) FROM session_state GROUP BY session"
        left = dict(await rows(pool, query))
        assert set(left.values()) == {3}
        return set(left)

    assert await left_after(first.root) == {"s", str(alone.root), "of nobody"}
    assert await left_after(second.root) == {str(alone.root), "of nobody"}
    assert await left_after(named.root) == {str(alone.root), "of nobody"}
    assert await left_after(alone.root) == {"of nobody"}


async def test_a_subject_s_conversations_are_forgotten_whoever_else_took_part(pool: Pool) -> None:
    mine, others = Moments(), Moments()
    await record(pool, mine.plan_started(session_id="s", subject="p-1"))
    await record(pool, others.plan_started(session_id="s", subject="p-2"))
    sessions = PostgresSessions(ProjectPool(pool))
    for user in (None, User("ann"), User("bob")):
        await sessions.change_state(conversation_of("s", user), {"said": "p-1"}, [])

    done = await PostgresDeletion(ProjectPool(pool)).erase_subject("p-1")

    assert (done.runs, done.records, done.left) == (1, 1, 0)
    assert await rows(pool, "SELECT session_id FROM session_state") == []
    assert await rows(pool, "SELECT count(*) FROM run WHERE deleted_at IS NULL") == [(1,)]


async def test_erasing_a_subject_names_the_runs_that_are_not_projected(pool: Pool) -> None:
    settled, failed = UUID(int=1), UUID(int=2)
    for run in (settled, failed):
        await store_run(pool, run)
    await make_pending(pool, failed, "infinity")
    await make_pending(pool, settled)
    _, events = rich_run(subject="p-1")
    await record(pool, *events)
    deletion = PostgresDeletion(ProjectPool(pool))

    async def settle() -> list[UUID]:
        # As a projector does: now the run has a subject.
        await rows(pool, "DELETE FROM pending_run WHERE root_plan_id = %s RETURNING 1", settled)
        await rows(
            pool, "UPDATE run SET subject = 'p-1' WHERE root_plan_id = %s RETURNING 1", settled
        )
        return await deletion.pending_runs()

    done = await deletion.erase_subject("p-1", settle)

    assert (done.runs, done.left, done.unprojected) == (2, 0, [failed])
    assert (await deletion.erase_subject("p-1")).unprojected == [failed]


async def test_spans_that_arrive_after_an_erasure_began_are_not_waited_for(pool: Pool) -> None:
    run = UUID(int=1)
    await store_run(pool, run)
    await make_pending(pool, run, since=LONG_AGO + timedelta(days=1))
    deletion = PostgresDeletion(ProjectPool(pool), clock=lambda: LONG_AGO)
    assert await deletion.pending_runs() == []


async def test_tombstone_of_a_failed_projection_says_nothing_of_it(pool: Pool) -> None:
    run = UUID(int=1)
    await store_run(pool, run)
    await rows(
        pool,
        "UPDATE run SET projection_error = 'a secret', projected = 3, projection_version = 1,"
        " span_bytes = 9, settle_at = now(), next_projection_at = now() RETURNING 1",
    )
    await PostgresDeletion(ProjectPool(pool)).erase_run(run)
    [(tombstone,)] = await rows(pool, "SELECT row_to_json(run) FROM run")
    named = ("projection_error", "projected", "projection_version", "span_bytes", "settle_at")
    assert not any(tombstone[name] for name in (*named, "next_projection_at"))


@pytest.mark.thorough
async def test_erasing_again_goes_on_with_what_was_interrupted(pool: Pool) -> None:
    run, events = rich_run(subject="p-1")
    await record(pool, *events)
    dying = PostgresDeletion(ProjectPool(pool), rows_at_once=3)
    await dying._bury(sql.OF_SUBJECT, {"subject": "p-1"}, with_sessions=True)

    done = await PostgresDeletion(ProjectPool(pool)).erase_subject("p-1")

    assert (done.runs, done.left) == (1, 0)
    assert set((await left_of(pool, [run.root])).values()) == {0}


GIVEN = {
    "project_id": 1,
    "runs": [new_id()],
    "run": new_id(),
    "subject": "p",
    "sessions": ["s"],
    "named": [new_id()],
    "most": 10,
    "keep_runs": 100,
    "last": new_id(),
}


@pytest.mark.thorough
@on_one_postgres
@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        (sql.choosing(sql.TOO_OLD, sql.OLDEST_FIRST, sql.PASSING_OVER), {"run_by_recorded_at"}),
        (sql.choosing(sql.TOO_MANY, sql.OLDEST_FIRST, sql.PASSING_OVER), {"run_by_recorded_at"}),
        (sql.choosing(sql.OF_SUBJECT, sql.BY_SUBJECT, sql.WAITING), {"run_by_subject"}),
        (sql.choosing(IS_BURIED, sql.BY_ID, sql.PASSING_OVER), {"run_buried"}),
        (sql.LAST_KEPT, {"run_by_recorded_at"}),
        (sql.forgetting(sql.PASSING_OVER), {"run_by_swept_at"}),
        (sql.LEFT_SESSIONS, {"run_by_session_id"}),
        (sql.FORGET_SESSIONS, {"session_state_by_session"}),
        *((sweep, {f"{table}_by_run"}) for table, sweep in list(sql.SWEEPS.items())[3:]),
        (sql.SWEEPS["otel_span"], {"otel_span_pkey"}),
        (sql.SWEEPS["otel_block"], {"otel_block_pkey"}),
        (sql.FORGET_PENDING, {"pending_run_pkey"}),
        (sql.CUTS[0], {"plan_execution_record_by_run"}),
        (sql.CUTS[1], {"act_tool_info_by_run"}),
        (sql.COUNT_LEFT, {"act_tool_info_by_run", "recorder_run_by_root_plan_id"}),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(sorted(value)),
)
async def test_what_deletes_goes_along_indexes_behind_the_wall(
    pool: Pool, statement: str, indexes: set[str]
) -> None:
    given = GIVEN | {"now": "2026-06-01Z", "before": "2026-05-01Z", "last_at": "2026-05-01Z"}
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", given)
        [[plan]] = await cursor.fetchall()
    found = nodes(plan[0]["Plan"])
    assert "Seq Scan" not in {node["Node Type"] for node in found}
    assert indexes <= {node["Index Name"] for node in found if "Index Name" in node}


@pytest.mark.thorough
@on_one_postgres
async def test_a_tombstone_goes_without_reading_all_plans(pool: Pool) -> None:
    check = (
        "SELECT 1 FROM ONLY plan_execution_record x WHERE $1 = project_id AND $2 = root_plan_id"
        " FOR KEY SHARE OF x"
    )
    async with pool.connection() as connection:
        await connection.execute("SET enable_seqscan = off")
        cursor = await connection.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {check}".encode())
        [[plan]] = await cursor.fetchall()
        await connection.execute("RESET enable_seqscan")
    assert "plan_execution_record_by_run" in str(plan)
