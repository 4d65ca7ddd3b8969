"""A deleted run disappears for readers and writers at once, and then from every table."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.citus_databases import on_one_postgres
from tests.contract.moments import Moments
from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import traces_of
from tests.projecting import DatabaseProjection, roll_up
from tests.storage.postgres.deletions import (
    left_of,
    record,
    rich_run,
    rows,
    stopped_in_the_middle,
    tables_naming,
)
from tests.storage.postgres.stored_spans import (
    LONG_AGO,
    make_pending,
    store_block,
    store_run,
)
from tests.storage.postgres.test_conversations import MANY
from tests.storage.postgres.test_list_queries import nodes
from tests.stored import read_spans
from tests.trees import read_tree
from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.otel.otlp.spans import root_plan_id
from tracer.records import new_id
from tracer.records.access import ProjectSettings
from tracer.records.pages import TimeRange
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool, deletion
from tracer.storage.postgres.deletion import PostgresDeletion
from tracer.storage.postgres.project_stores import PostgresSessions
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import in_project
from tracer.storage.postgres.tables import TABLES
from tracer.store import Erasure, RunFilter, ToolCallFilter
from tracer.tools.parameters import User
from tracer.tools.run import conversation_of


@pytest.mark.parametrize("of_whole", [True, False])
async def test_deleted_piece_of_work_is_named_in_no_table(pool: Pool, of_whole: bool) -> None:
    first, events = rich_run(session_id="s")
    last, more = rich_run(session_id="s")
    more[0] = last.plan_started(30, session_id="s", follows_keys=("toolu_1",))
    key = first.call_started(provider_call_id="toolu_1")
    await record(pool, *events, key, *more)
    projection, project = DatabaseProjection(pool.kwargs), ProjectPool(pool)
    await projection.link()
    await roll_up(pool)
    assert await tables_naming(pool, first.root) >= {"run", "run_link", "run_group"}
    deleted = {first.root, last.root} if of_whole else {first.root}

    await PostgresDeletion(project).erase_run(first.root, all_parts=of_whole)
    await projection.link()

    assert set((await left_of(pool, deleted)).values()) == {0}
    for run_id in deleted:
        # A run without a recorder is its own one. The pruner deletes its lease.
        assert await tables_naming(pool, run_id) - {"recorder_lease"} == {"run"}
    query = "SELECT root_plan_id, head_id, continues_run_id, whole_status, is_inside FROM run"
    assert {*await rows(pool, query)} == {
        (run, None, None, None, False) for run in (first.root, last.root)
    }


@pytest.mark.parametrize("max_rows", [3, 1_000, pytest.param(1, marks=pytest.mark.thorough)])
async def test_deleted_run_has_no_rows_in_any_table(pool: Pool, max_rows: int) -> None:
    run, events = rich_run(follows_runs=(new_id(),))
    await record(pool, *events)
    await DatabaseProjection(pool.kwargs).link()
    trace = spans_from(*(make_span(each, "a tool") for each in range(1, 7)))
    of_spans = root_plan_id(trace[0].trace_id)
    for each in (trace[:2], trace[2:]):
        await store_block(pool, each)
    await make_pending(pool, of_spans)
    await rows(
        pool,
        "INSERT INTO removed_record VALUES (1, %s, %s, 'step', 1) RETURNING 1",
        run.root,
        new_id(),
    )
    await rows(pool, "INSERT INTO otel_session VALUES (1, %s, %s) RETURNING 1", of_spans, new_id())
    await roll_up(pool)
    before = await left_of(pool, [run.root, of_spans])
    assert all(before.values()), f"a table with nothing of the runs: {before}"

    deletion = PostgresDeletion(ProjectPool(pool), max_rows=max_rows)
    done = [await deletion.erase_run(each) for each in (run.root, of_spans)]

    assert set((await left_of(pool, [run.root, of_spans])).values()) == {0}
    assert [each.left for each in done] == [0, 0]
    assert sum(each.runs for each in done) == 2
    assert sum(each.spans for each in done) == len(trace)
    named = ("plan_execution_record", "agent_execution_record", "think_act_record", "act_tool_info")
    assert sum(each.records for each in done) == sum(before[table] for table in named)


async def test_tombstone_does_not_contain_the_subject(pool: Pool) -> None:
    run, events = rich_run(subject="p-1", session_id="s-1", title="a secret", tags=["t-1"])
    await record(pool, *events)
    await PostgresDeletion(ProjectPool(pool)).erase_run(run.root)
    [(tombstone,)] = await rows(pool, "SELECT row_to_json(run) FROM run")
    kept = {name for name, value in tombstone.items() if value and name != "recorded_at"}
    assert kept == {
        *("project_id", "root_plan_id", "status", "revision", "source", "is_agent_work"),
        *("changed_at", "deleted_at", "swept_at", "summed_revision", "is_summed"),
    }
    assert tombstone["status"] == "unknown"


@pytest.mark.parametrize("max_rows", [3, 1_000])
async def test_run_is_not_readable_while_its_rows_are_deleted(
    pool: Pool,
    reader: PostgresReader,
    writer: PostgresWriter,
    database_url: str,
    max_rows: int,
) -> None:
    run, events = rich_run(calls=8)
    other, others = rich_run(calls=0)
    await record(pool, *events, *others)
    deletion = PostgresDeletion(ProjectPool(pool), max_rows=max_rows)
    async with stopped_in_the_middle(database_url, run.root, deletion.erase_run(run.root)):
        left = await left_of(pool, [run.root])
        assert left["plan_execution_record"] > 1
        if max_rows == 3:
            assert left["act_tool_info"] == 0

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

        # These would never return if they waited for the deletion.
        late = await writer.write([run.plan_started(), run.call_finished(), other.call_finished()])
        assert [(each.index, each.code) for each in late.refused] == [
            (0, "run_deleted"),
            (1, "run_deleted"),
        ]
        trace = spans_from(make_span(1, "a tool"))
        of_run = [replace(each, trace_id=run.root.bytes) for each in trace]
        spans = await writer.write_spans(traces_of(of_run))
        assert [each.code for each in spans.refused] == ["run_deleted"]
        with pytest.raises(RecordNotFound):
            await writer.delete_run(run.root)

    assert (await left_of(pool, [run.root]))["plan_execution_record"] > 0
    assert await pruned(PostgresDeletion(ProjectPool(pool))) == [1]
    assert set((await left_of(pool, [run.root])).values()) == {0}
    assert len((await read_tree(reader, other.root, Payloads.NONE)).plans) == 1


async def test_pruner_skips_a_run_whose_rows_another_process_deletes(
    pool: Pool, database_url: str
) -> None:
    run, events = rich_run()
    await record(pool, *events)
    deletion = PostgresDeletion(ProjectPool(pool))
    async with stopped_in_the_middle(database_url, run.root, deletion.erase_run(run.root)):
        assert await pruned(PostgresDeletion(ProjectPool(pool))) == []


async def pruned(deletion: PostgresDeletion) -> list[int]:
    """Return how many runs each transaction of a pruner finished, if the project keeps all."""
    async with aclosing(deletion.prune(ProjectSettings())) as pruning:
        return [result.runs async for result in pruning]


def readings(reader: PostgresReader, run: Moments) -> list[Any]:
    return [
        reader.read_run(run.root),
        reader.read_plan(run.root),
        read_tree(reader, run.root, Payloads.NONE),
        reader.read_think_act(run.think_act),
        reader.read_tool_call(run.call),
        reader.read_whole_run(run.root),
        read_spans(reader, run.root),
        reader.read_changes(run.root, 0, 100),
    ]


@pytest.mark.thorough
async def test_session_state_is_deleted_with_its_last_run(pool: Pool) -> None:
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


async def test_erasing_a_subject_deletes_its_sessions_with_other_participants(pool: Pool) -> None:
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


async def test_erasing_a_subject_waits_for_projections_and_reports_failed_ones(pool: Pool) -> None:
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


async def test_erasure_does_not_wait_for_spans_that_arrive_after_it_began(pool: Pool) -> None:
    run = UUID(int=1)
    await store_run(pool, run)
    await make_pending(pool, run, since=LONG_AGO + timedelta(days=1))
    deletion = PostgresDeletion(ProjectPool(pool), clock=lambda: LONG_AGO)
    assert await deletion.pending_runs() == []


async def test_tombstone_of_a_failed_projection_has_no_error(pool: Pool) -> None:
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


async def test_erasing_a_subject_again_continues_an_interrupted_erasure(
    pool: Pool, database_url: str
) -> None:
    run, events = rich_run(subject="p-1", session_id="s-1")
    await record(pool, *events)
    sessions = PostgresSessions(ProjectPool(pool))
    await sessions.change_state(conversation_of("s-1", None), {"said": "p-1"}, [])
    deletion = PostgresDeletion(ProjectPool(pool))
    async with stopped_in_the_middle(database_url, run.root, deletion.erase_subject("p-1")):
        assert await rows(pool, "SELECT session_id FROM session_state") == []

    done = await deletion.erase_subject("p-1")

    assert (done.runs, done.left) == (1, 0)
    assert set((await left_of(pool, [run.root])).values()) == {0}


@pytest.mark.parametrize("max_rows", [1, 12, 60, 1_000])
async def test_deletion_in_several_transactions_counts_each_run_once(
    pool: Pool, max_rows: int
) -> None:
    runs = [rich_run(calls=calls, subject="p-1") for calls in (0, 4, 1, 0, 2)]
    for _, events in runs:
        await record(pool, *events)
    ids = [run.root for run, _ in runs]
    before = await left_of(pool, ids)
    recorded = sum(before[TABLES[kind]] for kind in RECORDS)

    done = await PostgresDeletion(ProjectPool(pool), max_rows=max_rows).erase_subject("p-1")

    assert (done.runs, done.records, done.left) == (5, recorded, 0)
    assert set((await left_of(pool, ids)).values()) == {0}


async def test_records_with_circular_references_are_deleted(pool: Pool) -> None:
    first, second = Moments(), Moments()
    for run in (first, second):
        one, other = new_id(), new_id()
        await record(
            pool,
            run.plan_started(),
            run.step_started(),
            run.call_started(tool_call_id=one, parent_tool_call_id=other),
            run.call_started(tool_call_id=other, parent_tool_call_id=one),
        )
    for run, max_rows in ((first, 1_000), (second, 1)):
        done = await PostgresDeletion(ProjectPool(pool), max_rows=max_rows).erase_run(run.root)
        assert (done.records, done.left) == (4, 0)


@pytest.mark.thorough
async def test_concurrent_deletions_of_a_run_delete_it_once(pool: Pool) -> None:
    run, events = rich_run(calls=30, subject="p-1")
    await record(pool, *events)
    small = PostgresDeletion(ProjectPool(pool), max_rows=10)
    answers = await asyncio.gather(
        small.erase_run(run.root),
        small.erase_run(run.root),
        PostgresDeletion(ProjectPool(pool)).erase_subject("p-1"),
        pruned(small),
        return_exceptions=True,
    )
    assert {type(each) for each in answers} <= {Erasure, RecordNotFound, list}
    assert await pruned(small) == []
    assert set((await left_of(pool, [run.root])).values()) == {0}


GIVEN = {
    "project_id": 1,
    "runs": [new_id()],
    "subject": "p",
    "sessions": ["s"],
    "named": [new_id()],
    "heads": [new_id()],
    "most": 10,
    "keep_runs": 100,
    "last": new_id(),
    "after": new_id(),
    "session": "s",
    "conversations": [new_id()],
}


CONVERSATIONS = """
INSERT INTO conversation (project_id, session_key, session_id, status, statuses, turns, open_turns,
    failed_turns, first_at, last_at, subjects, agents, moved_at, moves, input_tokens, output_tokens,
    cost_usd, unpriced_calls, tool_calls, failed_calls)
SELECT 1, gen_random_uuid(), i, 'succeeded', '{}', 1, 0, 0, now(), now(), '{}', '{}', now(), '{}',
    0, 0, 0, 0, 0, 0
FROM generate_series(1, 1000) AS i"""

RECORDS_BY_RUN = {f"{TABLES[kind]}_by_run" for kind in RECORDS}
RUN_INDEXES_OF_WORK = ({"recorder_run_by_root_plan_id"}, {"pending_run_pkey"})


@pytest.mark.thorough
@on_one_postgres
@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        (deletion.find_runs(deletion.TOO_OLD), {"run_by_recorded_at"}),
        (deletion.find_runs(deletion.TOO_MANY), {"run_by_recorded_at"}),
        (deletion.LAST_KEPT, {"run_by_recorded_at"}),
        (deletion.FIND_YOUNGER_WORK, {"run_by_head", "run_pkey"}),
        (deletion.FIND_LATER_PARTS, {"run_by_head"}),
        (deletion.find_some(deletion.OF_SUBJECT), {"run_by_subject"}),
        (deletion.find_some(deletion.OF_SESSION), {"run_by_session_id"}),
        (deletion.FIND_SESSIONS_OF_HEADS, {"run_pkey"}),
        (deletion.DELETE_CONVERSATIONS, {"conversation_pkey"}),
        (deletion.FIND_TOMBSTONES, {"run_to_purge"}),
        (deletion.DELETE_OLD_TOMBSTONES, {"run_by_swept_at"}),
        (deletion.FIND_SESSIONS_IN_USE, {"run_by_session_id"}),
        (deletion.DELETE_STATES, {"session_state_by_session"}),
        *zip(deletion.FORGET_WORK, RUN_INDEXES_OF_WORK, strict=True),
        # Its conditions are those of the statements that delete.
        (
            deletion.COUNT_REMAINING,
            {*RECORDS_BY_RUN, "otel_block_pkey", "recorder_run_by_root_plan_id"},
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(sorted(value)),
)
async def test_deletions_use_indexes_under_row_level_security(
    pool: Pool, database_url: str, statement: str, indexes: set[str]
) -> None:
    # In an empty table, one index that begins with the project costs as little as another.
    with psycopg.connect(database_url) as connection:
        connection.execute(MANY)
        connection.execute(CONVERSATIONS)
        connection.execute("ANALYZE run, conversation")
    given = GIVEN | {
        "now": "2026-06-01Z",
        "before": "2026-05-01Z",
        "last_at": "2026-05-01Z",
        "after_at": "2026-01-01Z",
    }
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", given)
        [[plan]] = await cursor.fetchall()
    found = nodes(plan[0]["Plan"])
    assert "Seq Scan" not in {node["Node Type"] for node in found}
    assert indexes <= {node["Index Name"] for node in found if "Index Name" in node}


@pytest.mark.thorough
@on_one_postgres
async def test_deleting_a_tombstone_does_not_scan_all_plans(pool: Pool) -> None:
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
