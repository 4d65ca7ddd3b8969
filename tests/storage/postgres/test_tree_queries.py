"""Reading a tree takes a constant number of queries, and the planner's indexes serve it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.citus_databases import on_one_postgres
from tests.contract.moments import Moments
from tests.projecting import DatabaseProjection
from tests.sample_runs import sample_run
from tests.trees import read_tree
from tracer.lineage import Payloads
from tracer.records import Kind, new_id
from tracer.storage.postgres import Pool, PostgresWriter
from tracer.storage.postgres.reader import PostgresReader


async def test_tree_query_count_is_independent_of_sub_plan_count(
    writer: PostgresWriter, reader: PostgresReader, asked: list[str]
) -> None:
    counts = {}
    for sub_plans in (3, 300):
        run = sample_run(sub_plans=sub_plans)
        await writer.write(run.events)
        for plan in (run.root, run.sub_plans[-1]):
            asked.clear()
            rows = await read_tree(reader, plan, Payloads.PREVIEW)
            assert len(rows.plans) == (1 + sub_plans if plan == run.root else 1)
            counts[sub_plans, plan == run.root] = len(asked)
    assert counts == {(3, True): 5, (300, True): 5, (3, False): 7, (300, False): 7}


async def test_tree_of_ten_parts_takes_three_queries_more_than_that_of_one(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, asked: list[str]
) -> None:
    run = sample_run()
    parts = [Moments() for _ in range(10)]
    claims = [each.plan_started(90, follows_runs=(run.root,)) for each in parts]
    await writer.write([*run.events, *claims])
    counts = []
    for _ in range(2):
        asked.clear()
        tree = await read_tree(reader, run.root, Payloads.PREVIEW)
        counts.append((len(asked), len({each["rootPlanId"] for each in tree.plans})))
        await DatabaseProjection(pool.kwargs).link()
    assert counts == [(5, 1), (7, 11)]


async def test_tree_of_many_rows_is_complete_and_ordered(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    run = Moments()
    calls = [run.call_started(number, tool_call_id=new_id()) for number in range(1_500)]
    await writer.write([run.plan_started(), *calls])

    rows = await read_tree(reader, run.root, Payloads.FULL)
    whole = await reader.read_whole_run(run.root)

    found = [UUID(row["toolCallId"]) for row in rows.tool_calls]
    assert found == [call.tool_call_id for call in calls]
    assert len(whole.records[Kind.TOOL_CALL]) == len(calls)


async def test_tree_of_a_run_takes_a_constant_number_of_queries(
    writer: PostgresWriter, reader: PostgresReader, asked: list[str]
) -> None:
    counts = set()
    for sub_plans in (3, 300):
        run = sample_run(sub_plans=sub_plans)
        await writer.write(run.events)
        asked.clear()
        whole = await reader.read_whole_run(run.root)
        assert len(whole.records[Kind.PLAN]) == 1 + sub_plans
        counts.add(len(asked))
    assert counts == {7}


async def test_lineage_of_a_call_takes_a_constant_number_of_queries(
    writer: PostgresWriter, reader: PostgresReader, asked: list[str]
) -> None:
    counts = set()
    for depth in (1, 30):
        run = Moments()
        plan, call = run.root, run.call
        await writer.write([run.plan_started(), run.call_started()])
        for level in range(1, depth):
            above, plan, opener, call = plan, new_id(), call, new_id()
            await writer.write(
                [
                    run.sub_plan_started(plan, opener, parent_plan_id=above, depth=level),
                    run.call_started(plan_id=plan, step_id=new_id(), tool_call_id=call),
                ]
            )
        asked.clear()
        assert len((await reader.read_tool_call(call)).lineage) == 3 * depth
        counts.add(len(asked))
    assert len(counts) == 1


@on_one_postgres
async def test_foreign_keys_are_checked_without_reading_the_whole_run(
    pool: Pool, writer: PostgresWriter
) -> None:
    """A fresh database has no statistics, and the planner must not be misled by that."""
    run = Moments()
    size = 2_000
    await writer.write([run.plan_started(), *(calls(run) for _ in range(size))])
    await writer.delete_run(run.root)
    async with pool.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        cursor = await connection.execute("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes")
        [(read,)] = await cursor.fetchall()
    assert read < 20 * size


def calls(run: Moments) -> Any:
    return run.call_started(tool_call_id=new_id(), think_act_id=new_id())
