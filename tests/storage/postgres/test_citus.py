"""Citus: the distribution of tables, the shards of each query, and outages of workers.

Most tests need a cluster and are skipped without one. Set `TRACER_TEST_CITUS_URL` or
`TRACER_TEST_DATABASE_URL` to a database of its coordinator, on which the workers are registered.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from api.middleware.authentication import is_loopback
from api.routes.plans import tree_json
from tests.citus_databases import (
    drop_cluster_database,
    make_cluster,
    on_all_nodes,
    spread_database,
    workers_of,
)
from tests.databases import SERVER_VARIABLE, fresh_database
from tests.otel.captured import spans_of
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.sample_runs import START, SampleRun, sample_run
from tests.stepping import stepping_clock
from tests.storage.postgres.lock_waits import PLENTY_SECONDS
from tests.stored import read_spans
from tests.torture.database_way import DatabaseWay, database_way
from tracer.errors import ConfigurationError, StoreUnavailable
from tracer.lineage import Payloads, build_tree
from tracer.otel.otlp.spans import root_plan_id
from tracer.records import Kind
from tracer.storage.postgres import (
    Pool,
    PostgresWriter,
    ProjectPool,
    WriterOptions,
    connection_options,
    open_pool,
    postgres_writer,
    sync_connection,
)
from tracer.storage.postgres.citus import write_parts
from tracer.storage.postgres.linker import READ_RUNS, Linker
from tracer.storage.postgres.migrate import upgrade
from tracer.storage.postgres.pool import Numbered, PartlyWritten
from tracer.storage.postgres.projection import PostgresProjection
from tracer.storage.postgres.projection_rows import FIND_DUE
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import PROGRAM_ROLE, in_project
from tracer.store import Refusal, RunFilter

CITUS_VARIABLE = "TRACER_TEST_CITUS_URL"


@pytest.fixture(scope="module")
def cluster() -> str:
    url = os.environ.get(CITUS_VARIABLE) or os.environ.get(SERVER_VARIABLE)
    if url is None or not workers_of(url):
        pytest.skip(f"{CITUS_VARIABLE} names no coordinator of Citus")
    return url


@pytest.fixture
def citus_url(cluster: str) -> Iterator[str]:
    with spread_database(cluster) as url:
        yield url


@pytest.fixture
async def pool(citus_url: str) -> AsyncIterator[Pool]:
    async with open_pool(citus_url) as pool:
        yield pool


@pytest.fixture
def unmigrated_url(cluster: str) -> Iterator[str]:
    """A database that is on all nodes; the coordinator's has not the extension yet."""
    name = f"tracer_citus_{uuid4().hex}"
    try:
        yield on_all_nodes(cluster, name)
    finally:
        drop_cluster_database(cluster, name)


async def _written(pool: Pool, *runs: SampleRun) -> None:
    writer = postgres_writer(ProjectPool(pool), WriterOptions(clock=stepping_clock(START)))
    for run in runs:
        answer = await writer.write(run.events)
        assert answer.refused == []


async def _tree(pool: Pool, run: SampleRun, payloads: Payloads) -> bytes:
    rows = await PostgresReader(ProjectPool(pool)).read_tree(run.root, payloads)
    return tree_json(build_tree(rows, str(run.root)))


def test_run_tables_are_distributed_and_shared_ones_replicated(citus_url: str) -> None:
    query = """
        SELECT table_name::text, citus_table_type, distribution_column,
            colocation_id = min(colocation_id) FILTER (WHERE table_name = 'run'::regclass) OVER ()
        FROM citus_tables"""
    with psycopg.connect(citus_url) as connection:
        found = {name: how for name, *how in connection.execute(query).fetchall()}
    with_runs, shared = ["distributed", "root_plan_id", True], ["reference", "<none>", False]
    assert found == {
        **dict.fromkeys(
            (
                *("run", "plan_execution_record", "agent_execution_record", "think_act_record"),
                *("act_tool_info", "otel_block", "pending_run"),
                *(
                    "removed_record",
                    "recorder_run",
                    "run_group",
                    "run_part_of_day",
                    "run_link",
                    "otel_session",
                ),
            ),
            with_runs,
        ),
        **dict.fromkeys(("project", "api_key", "sign_in", "analyst", "model_price"), shared),
        "session_state": ["distributed", "session_id", False],
        "conversation": ["distributed", "session_key", False],
    }


def test_migrating_again_changes_nothing(citus_url: str) -> None:
    query = "SELECT conrelid::regclass::text, conname FROM pg_constraint ORDER BY 1, 2"
    with psycopg.connect(citus_url) as connection:
        before = connection.execute(query).fetchall()
    upgrade(citus_url)
    with psycopg.connect(citus_url) as connection:
        assert connection.execute(query).fetchall() == before


def test_migrating_a_citus_cluster_without_workers_is_rejected(unmigrated_url: str) -> None:
    make_cluster(unmigrated_url, [])
    with pytest.raises(ConfigurationError, match="citus_add_node"):
        upgrade(unmigrated_url)


async def test_runs_of_available_citus_workers_are_written_while_one_is_away() -> None:
    async def write(part: list[Numbered[str]]) -> list[Refusal]:
        if "lost" in dict(part).values():
            raise psycopg.errors.ConnectionFailure
        return [Refusal(index, "bad", "It is bad.") for index, text in part if text == "bad"]

    parts = [[(0, "good"), (3, "bad")], [(1, "lost")], [(2, "good")]]
    with pytest.raises(PartlyWritten) as failure:
        await write_parts(parts, write)
    assert failure.value.written == {0, 2, 3}
    assert failure.value.refused == [Refusal(3, "bad", "It is bad.")]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([[(0, "a")], [(1, "b")]], psycopg.OperationalError),  # from the coordinator
        ([[(0, "a"), (1, "b")]], psycopg.errors.ConnectionFailure),
    ],
)
async def test_write_fails_if_all_citus_workers_are_away(
    parts: list[list[Numbered[str]]], error: type[psycopg.Error]
) -> None:
    async def write(part: list[Numbered[str]]) -> list[Refusal]:
        raise error

    with pytest.raises(error):
        await write_parts(parts, write)


async def test_migration_to_citus_distributes_existing_rows(
    cluster: str, unmigrated_url: str
) -> None:
    await asyncio.to_thread(upgrade, unmigrated_url)
    runs = [sample_run() for _ in range(4)]
    async with open_pool(unmigrated_url) as pool:
        await _written(pool, *runs)
        before = [await _tree(pool, run, Payloads.FULL) for run in runs]
    await asyncio.to_thread(make_cluster, unmigrated_url, workers_of(cluster))
    await asyncio.to_thread(upgrade, unmigrated_url)
    async with open_pool(unmigrated_url) as pool:
        after = [await _tree(pool, run, Payloads.FULL) for run in runs]
        assert after == before
        await _written(pool, sample_run())


@pytest.mark.parametrize("payloads", [Payloads.PREVIEW, Payloads.FULL])
async def test_tree_on_citus_is_byte_identical_to_the_one_on_one_postgres(
    pool: Pool, postgres_server_url: str, payloads: Payloads
) -> None:
    run = sample_run(sub_plans=5)
    await _written(pool, run)
    with fresh_database(postgres_server_url) as url:
        await asyncio.to_thread(upgrade, url)
        async with open_pool(url) as one:
            await _written(one, run)
            expected = await _tree(one, run, payloads)
    assert await _tree(pool, run, payloads) == expected


Asked = list[tuple[Any, str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The queries that cursors are given from now on, with their values."""
    found: Asked = []
    execute, execute_async = psycopg.Cursor.execute, psycopg.AsyncCursor.execute

    def note(cursor: Any, query: Any, params: Any) -> None:
        if re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", str(query)):
            found.append((type(cursor), str(query), params))

    def noted(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        note(self, query, params)
        return execute(self, query, params, **options)

    async def noted_async(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        note(self, query, params)
        return await execute_async(self, query, params, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noted_async)
    return found


def _tasks(url: str, asked: Asked) -> dict[str, set[int]]:
    """Return to how many shards each query goes, by those that go to shards."""
    tasks = {}
    with psycopg.connect(url) as connection:
        connection.execute(f"SET LOCAL ROLE {PROGRAM_ROLE}")
        connection.execute("SET LOCAL tracer.project_id TO 1")
        for kind, query, params in asked:
            # With its values in it: of a statement with parameters Citus may explain nothing.
            is_raw = issubclass(kind, (psycopg.RawCursor, psycopg.AsyncRawCursor))
            said = _filled(query, params, connection) if is_raw else query
            cursor = psycopg.ClientCursor(connection)
            found = cursor.execute(f"EXPLAIN {said}", None if is_raw else params)
            plan = "\n".join(line for (line,) in found)
            tasks[query] = {int(count) for count in re.findall(r"Task Count: (\d+)", plan)}
    return {query: counts for query, counts in tasks.items() if counts}


def _filled(query: str, params: list[Any], connection: psycopg.Connection) -> str:
    values = [sql.Literal(value).as_string(connection) for value in params]
    return re.sub(r"\$(\d+)", lambda found: values[int(found[1]) - 1], query)


IS_OF_NO_RUN = (
    *(
        "plan.plan_id = %(plan)s AND plan.project_id",
        "FROM project",
        "recorder_lease",
        "min(due_at)",
        FIND_DUE,
    ),
    *("FROM model_price", "pg_stat_activity", "head_id = %(run)s"),
)
"""Parts of statements that look up a bare id or later parts, or that do not read runs."""


async def test_queries_of_a_run_use_one_citus_shard(
    pool: Pool, citus_url: str, asked: Asked
) -> None:
    run = sample_run()
    writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
    await writer.write(run.events)
    spans = spans_of("openai-agents-openinference-concurrent")
    await writer.write_spans(traces_of(spans)[:1])
    await project_in(pool)
    for kind in (Kind.RUN, Kind.PLAN):  # as before a read through the API
        await PostgresProjection(ProjectPool(pool)).catch_up(kind, run.root)
    await reader.read_tree(run.root, Payloads.PREVIEW)
    await reader.read_tree(run.sub_plans[0], Payloads.PREVIEW)
    await reader.read_run(run.root)
    await reader.read_changes(run.root, 0, 1_000)
    await reader.read_revision(Kind.RUN, run.root)
    await reader.read_messages(run.root)
    await reader.search_run(run.root, "week")
    await reader.read_whole_run(run.root)
    await read_spans(reader, root_plan_id(spans[0].trace_id))

    asked_of_runs = [each for each in asked if not any(part in each[1] for part in IS_OF_NO_RUN)]
    tasks = _tasks(citus_url, asked_of_runs)

    assert len(tasks) >= 15
    assert {query: counts for query, counts in tasks.items() if counts != {1}} == {}


async def test_linker_reads_the_shards_once_for_several_runs(
    pool: Pool, citus_url: str, asked: Asked
) -> None:
    await _written(pool, *(sample_run() for _ in range(5)))

    def link() -> int:
        with sync_connection(connection_options(citus_url)) as connection:
            return Linker(connection).visit_due()

    assert await asyncio.to_thread(link) == 5
    assert [query for _, query, _ in asked].count(READ_RUNS) == 1


async def test_lists_and_statistics_include_all_citus_shards(pool: Pool) -> None:
    runs = [sample_run(title=f"run {number}") for number in range(12)]
    await _written(pool, *runs)
    reader = PostgresReader(ProjectPool(pool))
    first = await reader.list_runs(RunFilter(), 5, None)
    rest = await reader.list_runs(RunFilter(), 50, first.next_cursor)
    listed = [run.root_plan_id for run in (*first.items, *rest.items)]
    assert listed == [run.root for run in runs[::-1]]


async def test_row_level_security_holds_on_citus_workers(pool: Pool) -> None:
    mine, theirs = sample_run(), sample_run()
    await postgres_writer(ProjectPool(pool, 1)).write(mine.events)
    await postgres_writer(ProjectPool(pool, 2)).write(theirs.events)
    async with in_project(ProjectPool(pool, 1)) as connection:
        cursor = await connection.execute("SELECT root_plan_id FROM run")
        assert await cursor.fetchall() == [(mine.root,)]


async def test_acknowledged_events_survive_the_outage_of_a_citus_worker(
    cluster: str, unmigrated_url: str
) -> None:
    hosts = {urlsplit(cluster).hostname, *(host for host, _ in workers_of(cluster))}
    if not all(is_loopback(host or "") for host in hosts):
        pytest.skip("the coordinator reaches its workers through ports of this machine's loopback")
    async with AsyncExitStack() as stack:
        ways: list[DatabaseWay] = []
        nodes = []
        for host, port in workers_of(cluster):
            parts = urlsplit(unmigrated_url)
            user = parts.netloc.rpartition("@")[0]
            direct = parts._replace(netloc=f"{user}@{host}:{port}").geturl()
            way, url = await stack.enter_async_context(database_way(direct))
            ways.append(way)
            nodes.append(("127.0.0.1", int(urlsplit(url).port or 0)))
        await asyncio.to_thread(make_cluster, unmigrated_url, nodes)
        await asyncio.to_thread(upgrade, unmigrated_url)
        pool = await stack.enter_async_context(open_pool(unmigrated_url))
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        runs = [sample_run() for _ in range(40)]
        kept = [run for run in runs[:8] if await _is_acknowledged(writer, run)]
        assert kept == runs[:8]

        ways[0].close()
        with pytest.raises(StoreUnavailable, match=f":{nodes[0][1]}"):
            await reader.check()
        # At once: they go in one group, and those on the other worker are written all the same.
        is_kept = await asyncio.gather(*(_is_acknowledged(writer, run) for run in runs[8:]))
        lie_there = [await _port_of(pool, run) == nodes[1][1] for run in runs[8:]]
        assert is_kept == lie_there
        assert set(is_kept) == {True, False}

        ways[0].open()
        # Each session had a way of its own, which ended.
        await asyncio.gather(*(reader.check() for _ in range(8)))
        refused = [run for run, is_there in zip(runs[8:], is_kept, strict=True) if not is_there]
        async with asyncio.timeout(PLENTY_SECONDS):
            for run in refused:
                while not await _is_acknowledged(writer, run):  # a session hears of it once
                    pass
        for run in runs:
            tree = await reader.read_tree(run.root, Payloads.NONE)
            assert len(tree.tool_calls) == 3


async def _port_of(pool: Pool, run: SampleRun) -> int:
    """Return the port of the worker that has a run."""
    query = """
        SELECT nodeport FROM pg_dist_placement JOIN pg_dist_node USING (groupid)
        WHERE shardid = get_shard_id_for_distribution_column('run', %s)"""
    async with pool.connection() as connection:
        [(port,)] = await (await connection.execute(query, [run.root])).fetchall()
    assert isinstance(port, int)
    return port


async def _is_acknowledged(writer: PostgresWriter, run: SampleRun) -> bool:
    try:
        return (await writer.write(run.events)).refused == []
    except StoreUnavailable:
        return False
