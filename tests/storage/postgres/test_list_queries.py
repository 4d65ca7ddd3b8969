"""The cost of lists is independent of table size: each reads a bounded part of an index."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tests.citus_databases import on_one_postgres
from tests.contract.moments import Moments
from tests.sample_runs import sample_run
from tracer.records.pages import Page, RunOrder, RunPreview
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool
from tracer.storage.postgres.lists import MOST_SORTED, Listing, list_of_runs, list_of_tool_calls
from tracer.storage.postgres.pool import pooled_connection
from tracer.storage.postgres.reader import BY_HANDLE, PostgresReader
from tracer.storage.postgres.session import in_project
from tracer.store import RunFilter, ToolCallFilter

DAY = datetime(2026, 3, 4, tzinfo=UTC)

MANY = """
INSERT INTO run (project_id, root_plan_id, status, started_at, recorded_at, revision, tags,
    input_tokens, output_tokens, cost_usd, tool_calls, failed_calls, source)
SELECT 1, gen_random_uuid(), 'succeeded', at, at, 1, '{}', 0, 0, 0, 0, 0, 'events'
FROM generate_series(1, 1200) AS i, CAST(now() + i * interval '1 second' AS timestamptz) AS at"""


@pytest.fixture
def many_runs(database_url: str) -> None:
    """Record 1,200 empty runs, later than any other."""
    with psycopg.connect(database_url) as connection:
        connection.execute(MANY)


async def test_search_continues_over_rows_until_a_match(
    writer: PostgresWriter, reader: PostgresReader, many_runs: None
) -> None:
    run = sample_run()
    await writer.write(run.events)
    for wanted in (RunFilter(tool="check"), RunFilter(agent="nurse")):
        pages: list[Page[RunPreview]] = []
        cursor = None
        while not pages or cursor is not None:
            pages.append(await reader.list_runs(wanted, 10, cursor))
            cursor = pages[-1].next_cursor
        assert [len(page.items) for page in pages[:-1]] == [0, 0]
        first, second = (page.searched_back_to for page in pages[:-1])
        assert first is not None
        assert second is not None
        assert first > second
        assert [found.root_plan_id for found in pages[-1].items] == [run.root]
        assert pages[-1].searched_back_to is None


async def test_search_stops_when_the_page_is_full(
    reader: PostgresReader, many_runs: None, asked: list[str]
) -> None:
    page = await reader.list_runs(RunFilter(status="succeeded"), 50, None)
    assert (len(page.items), page.searched_back_to) == (50, None)
    assert len(asked) == 4
    asked.clear()
    page = await reader.list_runs(RunFilter(status="cancelled"), 50, None)
    assert (page.items, page.next_cursor is None) == ([], False)
    assert len(asked) == 2


async def test_histogram_and_sorted_page_take_a_constant_number_of_queries(
    reader: PostgresReader, many_runs: None, asked: list[str]
) -> None:
    counted = await reader.count_runs(RunFilter())
    assert (counted.count, sum(each.runs for each in counted.bins)) == (1_200, 1_200)
    assert len(asked) == 2
    asked.clear()
    page = await reader.list_runs(RunFilter(), 50, None, RunOrder.LONGEST)
    assert (len(page.items), page.searched_back_to) == (50, None)
    assert len(asked) == 6


@on_one_postgres
async def test_page_of_open_runs_takes_at_most_seven_queries(
    writer: PostgresWriter, reader: PostgresReader, many_runs: None, asked: list[str]
) -> None:
    run = Moments()
    await writer.write([run.plan_started(session_id="ward-3")])
    asked.clear()
    page = await reader.list_runs(RunFilter(session="ward-3"), 50, None)
    assert [found.root_plan_id for found in page.items] == [run.root]
    assert (page.next_cursor, page.searched_back_to) == (None, None)
    assert len(asked) == 7


@on_one_postgres
async def test_runs_of_a_session_too_large_to_sort_are_searched_page_by_page(
    reader: PostgresReader, many_runs: None, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        # At UTC, because `timestamptz + interval` depends on the session's time zone, and Citus
        # rejects an UPDATE with an expression that is not IMMUTABLE.
        connection.execute(
            "UPDATE run SET (recorded_at, started_at) ="
            " ((recorded_at AT TIME ZONE 'UTC' + interval '1 year') AT TIME ZONE 'UTC',"
            " (started_at AT TIME ZONE 'UTC' + interval '1 year') AT TIME ZONE 'UTC')"
        )
        for _ in range(MOST_SORTED // 1_200 + 1):
            connection.execute(MANY)
        connection.execute("UPDATE run SET session_id = 'x' WHERE recorded_at < now() + '1 day'")
    pages: list[Page[RunPreview]] = []
    while len(pages) < 4:
        cursor = pages[-1].next_cursor if pages else None
        pages.append(await reader.list_runs(RunFilter(session="x"), 50, cursor))
    assert [len(page.items) for page in pages] == [0, 0, 50, 50]
    assert [page.searched_back_to is None for page in pages] == [False, False, True, True]


@on_one_postgres
@pytest.mark.parametrize(
    ("listing", "index"),
    [
        (list_of_runs(RunFilter(), 1, None), "run_of_agents"),
        (list_of_runs(RunFilter(other_traces=True), 1, None), "run_by_start"),
        (list_of_runs(RunFilter(status="running"), 1, None), "run_open"),
        (list_of_runs(RunFilter(status="abandoned"), 1, None), "run_open"),
        (list_of_runs(RunFilter(status="failed"), 1, None), "run_failed"),
        (list_of_runs(RunFilter(until=DAY), 1, None), "run_of_agents"),
        (list_of_tool_calls(ToolCallFilter(), 1, None), "act_tool_info_by_start"),
        (list_of_tool_calls(ToolCallFilter(since=DAY), 1, None), "act_tool_info_by_start"),
        (list_of_tool_calls(ToolCallFilter(status="running"), 1, None), "act_tool_info_open"),
        (list_of_tool_calls(ToolCallFilter(status="failed"), 1, None), "act_tool_info_failed"),
        (list_of_tool_calls(ToolCallFilter(name="x"), 1, None), "act_tool_info_by_name"),
        (
            list_of_tool_calls(ToolCallFilter(name="x", status="failed"), 1, None),
            "act_tool_info_failed_by_name",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_lists_use_their_index_under_row_level_security(
    pool: Pool, listing: Listing, index: str
) -> None:
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        await connection.execute("SET LOCAL enable_bitmapscan = off")
        await connection.execute("SET LOCAL enable_sort = off")
        cursor = await connection.execute(
            f"EXPLAIN (FORMAT JSON) SELECT {listing.id_field} {listing.rows} LIMIT 10",
            listing.values,
        )
        [[plan]] = await cursor.fetchall()
    scans = [node for node in nodes(plan[0]["Plan"]) if "Index Name" in node]
    assert [node["Index Name"] for node in scans][-1:] == [index]
    once = {node["Index Name"] for node in scans[:-1]}
    assert once <= {"run_to_purge"}
    assert "Sort" not in {node["Node Type"] for node in nodes(plan[0]["Plan"])}


@on_one_postgres
@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(session="x"), "run_by_session_id"),
        (RunFilter(session="x", status="failed"), "run_by_session_id"),
        (RunFilter(session="x", since=DAY, other_traces=True), "run_by_session_id"),
        (RunFilter(subject="x"), "run_by_subject"),
        (RunFilter(subject="x", status="running", tool="check"), "run_by_subject"),
    ],
)
@pytest.mark.parametrize("has_statistics", [True, False])
async def test_runs_of_a_session_or_subject_use_their_index(
    pool: Pool, many_runs: None, wanted: RunFilter, index: str, has_statistics: bool
) -> None:
    listing = list_of_runs(wanted, 1, None)
    async with pooled_connection(pool) as connection:
        # Half of the runs are wanted, the oldest: along the list they come last.
        await connection.execute(
            "UPDATE run SET session_id = 'x', subject = 'x' WHERE recorded_at < ("
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY recorded_at) FROM run)"
        )
        if has_statistics:
            await connection.execute("ANALYZE run")
    assert await indexes_of(pool, listing) == {index}


@on_one_postgres
@pytest.mark.parametrize("status", [None, "failed"])
async def test_calls_with_a_provider_call_id_are_read_from_its_index(
    pool: Pool, status: str | None
) -> None:
    wanted = ToolCallFilter(provider_call_id="x", name="search", since=DAY, status=status)
    indexes = await indexes_of(pool, list_of_tool_calls(wanted, 1, None))
    assert indexes - {"run_to_purge"} == {"act_tool_info_by_provider_call_id"}


async def indexes_of(pool: Pool, listing: Listing) -> set[str]:
    """Return the indexes that a page of a list reads."""
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        cursor = await connection.execute(
            f"EXPLAIN (FORMAT JSON) SELECT {listing.id_field} {listing.rows} LIMIT 10",
            listing.values,
        )
        [[plan]] = await cursor.fetchall()
    return {node["Index Name"] for node in nodes(plan[0]["Plan"]) if "Index Name" in node}


def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan's nodes."""
    return [node, *(each for child in node.get("Plans", ()) for each in nodes(child))]


@on_one_postgres
async def test_handles_use_their_index_under_row_level_security(pool: Pool) -> None:
    values = {"project_id": 1, "from": "abcdef", "to": "abcdefg"}
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) {BY_HANDLE}", values)
        [[plan]] = await cursor.fetchall()

    found = [
        node["Index Cond"]
        for node in nodes(plan[0]["Plan"])
        if node.get("Index Name", "").endswith("_by_handle")
    ]
    assert found  # of an empty table, another index may cost the same
    assert all("handle_key >=" in condition for condition in found)
