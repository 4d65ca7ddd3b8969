"""Analysts read the data of one project by SQL, and cannot write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.citus_databases import without_analysts
from tests.otel.made_traces import make_span, spans_from
from tests.projecting import DatabaseProjection
from tests.sample_runs import SampleRun, sample_run
from tests.storage.postgres.stored_spans import LONG_AGO, make_pending, store_block
from tracer.errors import BadRequest, ConfigurationError
from tracer.otel.otlp.spans import root_plan_id
from tracer.storage.postgres import Pool, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.analysts import READER_ROLE, add_analyst, list_analysts, remove_analyst
from tracer.storage.postgres.migrate import downgrade, upgrade
from tracer.storage.postgres.projects import ensure_project
from tracer.storage.postgres.session import PROGRAM_ROLE

pytestmark = without_analysts

RELATIONS = """
SELECT n.nspname || '.' || c.relname, EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'project_id')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('public', 'trace') AND c.relkind IN ('r', 'v') ORDER BY 1"""


@dataclass
class Ward:
    """Two projects with a run and a trace each; an analyst of the second."""

    role: str
    owner_url: str
    url: str
    """For the analyst to connect to."""
    seen: SampleRun
    unseen: SampleRun

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            while cursor.nextset():  # what the last statement answered
                pass
            return cursor.fetchall()


@pytest.fixture
async def ward(pool: Pool, database_url: str) -> AsyncIterator[Ward]:
    runs = []
    other = await ensure_project(pool, "other")
    for project_id in (1, other):
        writer = postgres_writer(ProjectPool(pool, project_id))
        runs.append(sample_run())
        start, *events = runs[-1].events
        await writer.write([start.model_copy(update={"session_id": "s"}), *events])
        spans = spans_from(make_span(project_id, "a span"))
        await store_block(pool, spans, project_id=project_id)
        await make_pending(pool, root_plan_id(spans[0].trace_id), project_id=project_id)
    await DatabaseProjection(pool.kwargs).link()
    role = f"analyst of {urlsplit(database_url).path[1:]}"  # all tests share the cluster's roles
    new = await add_analyst(pool, role, "other")
    yield Ward(role, database_url, new.url, runs[1], runs[0])
    if [each for each in await list_analysts(pool) if each.role == role]:
        await remove_analyst(pool, role)


async def test_an_analyst_sees_one_project_in_every_table_and_view(ward: Ward) -> None:
    with psycopg.connect(ward.owner_url) as owner:
        relations = owner.execute(RELATIONS).fetchall()
    readable = {}
    for relation, has_project in relations:
        try:
            readable[relation] = len(ward.ask(f"SELECT * FROM {relation}"))
        except psycopg.errors.InsufficientPrivilege:
            continue
        assert has_project, f"{relation} can't tell projects apart"
        for setting in ("", "SET tracer.project_id = 1; "):
            assert ward.ask(f"{setting}SELECT * FROM {relation} WHERE project_id <> 2") == []

    kept_back = {"api_key", "sign_in", "session_state", "removed_record", "otel_session"}
    kept_back |= {"alembic_version"}
    assert {name for name, _ in relations} - set(readable) >= {f"public.{n}" for n in kept_back}
    assert readable["trace.runs"] == readable["public.run"] == 2
    assert {name for name in readable if name.startswith("trace.") and not readable[name]} == set()
    found = ward.ask("SELECT root_plan_id FROM trace.runs WHERE source = 'events'")
    assert found == [(ward.seen.root,)]
    assert ward.ask(f"SELECT * FROM trace.lineage_of('{ward.unseen.root}')") == []


async def test_views_show_span_blocks_and_pending_runs(ward: Ward) -> None:
    [(spans, size, stored, arrived_at)] = ward.ask(
        "SELECT spans, bytes, stored_bytes, arrived_at FROM trace.blocks"
    )
    assert (spans, arrived_at) == (1, LONG_AGO)
    assert size > 0 < stored
    pending = "SELECT spans, since, due_at, attempts, error FROM trace.behind"
    assert ward.ask(pending) == [(1, LONG_AGO, LONG_AGO, 0, None)]
    with psycopg.connect(ward.owner_url, autocommit=True) as owner:
        owner.execute("UPDATE run SET projection_error = 'too large'")
        owner.execute("UPDATE pending_run SET attempts = 5, failure = 'other'")
    assert [row[3:] for row in ward.ask(pending)] == [(5, "too large")]
    with psycopg.connect(ward.owner_url, autocommit=True) as owner:
        owner.execute("UPDATE run SET deleted_at = now()")
    assert ward.ask("SELECT FROM trace.blocks") == ward.ask(pending) == []


FORBIDDEN = [
    "INSERT INTO run (project_id, root_plan_id) VALUES (2, gen_random_uuid())",
    "UPDATE run SET title = 'x'",
    "DELETE FROM act_tool_info",
    "UPDATE trace.runs SET title = 'x'",
    "UPDATE analyst SET project_id = 1",
    "INSERT INTO analyst SELECT 'me', 1, true",
    "TRUNCATE run",
    "ALTER TABLE run DISABLE ROW LEVEL SECURITY",
    "DROP POLICY for_analysts ON run",
    "CREATE OR REPLACE VIEW trace.runs AS SELECT 1",
    "CREATE TABLE public.mine ()",
    "CREATE TABLE trace.mine ()",
    "SET ROLE tracer_program",
    "SET ROLE tracer_reader",
    "SET SESSION AUTHORIZATION tracer_program",
    "GRANT tracer_reader TO tracer_program",
    "COPY run TO PROGRAM 'cat'",
    "SELECT lo_creat(-1)",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_put(1, 0, 'x')",
    "SELECT lo_unlink(1)",
    "SELECT lo_open(1, 131072)",
]

REFUSALS = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ObjectNotInPrerequisiteState,  # a view of several tables
)


async def test_analyst_cannot_write_or_change_roles(ward: Ward) -> None:
    owner = urlsplit(ward.owner_url).username
    for statement in (*FORBIDDEN, f'SET ROLE "{owner}"', "DELETE FROM trace.tool_calls"):
        with pytest.raises(REFUSALS):
            ward.ask(statement)
    assert ward.ask("SELECT count(*) FROM run") == [(2,)]


async def test_where_clause_of_an_analyst_sees_no_row_of_other_projects(ward: Ward) -> None:
    with psycopg.connect(ward.url) as connection:
        connection.execute("""
            CREATE FUNCTION pg_temp.told(integer) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
            $$ BEGIN IF $1 <> 2 THEN RAISE 'project %', $1; END IF; RETURN true; END $$""")
        query = "SELECT count(*) FROM run WHERE pg_temp.told(project_id)"
        shown = connection.execute(query).fetchall()
    assert shown == [(2,)]


async def test_upgrade_limits_the_row_policy_of_the_server_to_its_own_role(ward: Ward) -> None:
    with psycopg.connect(ward.owner_url, autocommit=True) as owner:
        owner.execute("ALTER POLICY of_its_project ON run TO PUBLIC")  # as it was before 0011
    choose = "SET tracer.project_id = 1; SELECT count(*) FROM run WHERE project_id = 1"
    assert ward.ask(choose) == [(2,)]
    await asyncio.to_thread(upgrade, ward.owner_url)
    assert ward.ask(choose) == [(0,)]


async def test_a_removed_analyst_loses_its_open_session_and_cannot_log_in(
    ward: Ward, pool: Pool
) -> None:
    with psycopg.connect(ward.url, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM trace.runs").fetchone() == (2,)
        assert (await remove_analyst(pool, ward.role)).was_made
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT count(*) FROM trace.runs")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(ward.url)
    assert await list_analysts(pool) == []


async def test_open_transactions_and_temporary_views_of_analysts_delay_no_migration(
    ward: Ward,
) -> None:
    with closing(psycopg.connect(ward.url)) as analyst:
        analyst.execute("CREATE TEMP VIEW mine AS SELECT * FROM trace.runs")
        analyst.commit()
        analyst.execute("SELECT FROM mine")
        await asyncio.to_thread(downgrade, ward.owner_url, "base")
        await asyncio.to_thread(upgrade, ward.owner_url)
    with psycopg.connect(ward.owner_url) as owner:
        assert owner.execute("SELECT count(*) FROM trace.runs").fetchall() == [(0,)]


async def test_analyst_access_stays_revoked_if_its_role_cannot_be_dropped(
    ward: Ward, pool: Pool
) -> None:
    name = sql.Identifier(ward.role)
    with psycopg.connect(ward.owner_url, autocommit=True) as owner:
        owner.execute("CREATE SCHEMA scratch")
        owner.execute(sql.SQL("GRANT ALL ON SCHEMA scratch TO {}").format(name))
        with psycopg.connect(ward.url) as analyst:
            analyst.execute("CREATE TABLE scratch.findings AS SELECT FROM trace.runs")
            analyst.commit()
            analyst.execute(sql.SQL("ALTER ROLE {} PASSWORD 'locks the role'").format(name))
            with pytest.raises(
                BadRequest, match=r"no longer read records.* table scratch\.findings"
            ):
                await remove_analyst(pool, ward.role)
            with pytest.raises(psycopg.OperationalError):
                analyst.execute("SELECT FROM trace.runs")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(ward.url)
        assert await list_analysts(pool) == []
        member = "SELECT pg_has_role(%s, 'tracer_reader', 'MEMBER')"
        assert owner.execute(member, [ward.role]).fetchone() == (False,)
        assert owner.execute("SELECT count(*) FROM scratch.findings").fetchone() == (2,)
        owner.execute(sql.SQL("DROP OWNED BY {}").format(name))
        owner.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_removing_an_analyst_drops_its_role_with_rights_and_temporary_objects(
    ward: Ward, pool: Pool
) -> None:
    with psycopg.connect(ward.owner_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE codes ()")
        grant = sql.SQL("GRANT SELECT ON codes TO {}").format(sql.Identifier(ward.role))
        owner.execute(grant)
        with psycopg.connect(ward.url, autocommit=True) as analyst:
            analyst.execute("CREATE TEMP VIEW mine AS SELECT * FROM trace.runs")
            await remove_analyst(pool, ward.role)
        query = "SELECT FROM pg_roles WHERE rolname = %s"
        assert owner.execute(query, [ward.role]).fetchall() == []


async def test_an_owner_without_superuser_rights_adds_and_removes_analysts(
    database_url: str, empty_database_url: str
) -> None:
    assert database_url != empty_database_url  # the cluster has Tracer's roles
    parts = urlsplit(empty_database_url)
    name = sql.Identifier(f"owner of {parts.path[1:]}")
    role = f"analyst of {parts.path[1:]}"
    with psycopg.connect(empty_database_url, autocommit=True) as superuser:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE PASSWORD 'x'").format(name))
        for statement in (
            f"GRANT {PROGRAM_ROLE} TO {{}} WITH INHERIT FALSE",
            f"GRANT {READER_ROLE} TO {{}} WITH ADMIN OPTION",
            "ALTER DATABASE {database} OWNER TO {}",
            "GRANT CREATE ON SCHEMA public TO {}",
        ):
            database = sql.Identifier(parts.path[1:])
            superuser.execute(sql.SQL(statement).format(name, database=database))
        url = make_conninfo(empty_database_url, user=name.as_string()[1:-1], password="x")
        try:
            await asyncio.to_thread(upgrade, url)
            async with open_pool(url) as own_pool:
                analyst = await add_analyst(own_pool, role, "default")
                with psycopg.connect(analyst.url, autocommit=True) as session:
                    assert session.execute("SELECT FROM trace.runs").fetchall() == []
                    await remove_analyst(own_pool, role)
                    with pytest.raises(psycopg.OperationalError):
                        session.execute("SELECT 1")
            query = "SELECT FROM pg_roles WHERE rolname = %s"
            assert superuser.execute(query, [role]).fetchall() == []
        finally:
            superuser.execute(sql.SQL("DROP OWNED BY {}").format(name))
            superuser.execute(sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(database))
            superuser.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_removing_an_analyst_keeps_a_role_that_existed_before(ward: Ward, pool: Pool) -> None:
    role = f"{ward.role}, before"
    name = sql.Identifier(role)
    async with pool.connection() as connection:
        await connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        try:
            added = await add_analyst(pool, role, "default")
            assert (added.password, added.was_made) == (None, False)
            with pytest.raises(BadRequest, match="already"):
                await add_analyst(pool, role, "other")
            await remove_analyst(pool, role)
            cursor = await connection.execute("SELECT to_regrole(quote_ident(%s))::text", [role])
            assert await cursor.fetchone() == (f'"{role}"',)
        finally:
            await connection.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_analyst_role_with_additional_rights_is_rejected(ward: Ward, pool: Pool) -> None:
    role = f"{ward.role}, more"
    name = sql.Identifier(role)
    async with pool.connection() as connection:
        for may in ("SUPERUSER", "BYPASSRLS", "REPLICATION", "CREATEROLE", "IN ROLE pg_monitor"):
            await connection.execute(sql.SQL(f"CREATE ROLE {{}} LOGIN {may}").format(name))
            try:
                with pytest.raises(BadRequest, match="allow more than to read one project"):
                    await add_analyst(pool, role, "other")
            finally:
                await connection.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_roles_of_row_level_security_cannot_become_analysts(pool: Pool) -> None:
    for role in (PROGRAM_ROLE, READER_ROLE):
        with pytest.raises(BadRequest, match="cannot log in"):
            await add_analyst(pool, role, "default")


async def test_an_analyst_whose_role_is_missing_is_removed(ward: Ward, pool: Pool) -> None:
    async with pool.connection() as connection:  # as after a restore in another cluster
        await connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(ward.role)))
    assert (await remove_analyst(pool, ward.role)).role == ward.role
    assert await list_analysts(pool) == []


async def test_an_invalid_role_name_is_rejected(pool: Pool) -> None:
    for name in ("", "pg_mine", "public", "x" * 64):
        with pytest.raises(BadRequest):
            await add_analyst(pool, name, "default")


async def test_an_unknown_project_or_analyst_is_rejected(pool: Pool) -> None:
    with pytest.raises(ConfigurationError, match="no project"):
        await add_analyst(pool, "somebody", "nowhere")
    with pytest.raises(BadRequest, match="no analyst"):
        await remove_analyst(pool, "somebody")


# Of an empty table every index is as good as any other.
YEARS = """
SET session_replication_role = replica;
INSERT INTO run (project_id, root_plan_id, status, recorded_at, revision, started_at, tags,
    source, input_tokens, output_tokens, cost_usd, tool_calls, failed_calls)
SELECT 2, gen_random_uuid(), 'succeeded', at, 1, at, '{}', 'events', 0, 0, 0, 0, 0
FROM generate_series('2020-01-01'::timestamptz, '2025-12-31', '1 day') AS at;
INSERT INTO plan_execution_record (project_id, root_plan_id, plan_id, parent_plan_id,
    tool_call_id, status, recorded_at, revision, started_at)
SELECT 2, root_plan_id, gen_random_uuid(), root_plan_id, root_plan_id, 'succeeded', recorded_at, 1,
    started_at FROM run WHERE started_at < '2025-12-31';
INSERT INTO act_tool_info (project_id, root_plan_id, tool_call_id, step_id, status, recorded_at,
    revision, started_at)
SELECT 2, root_plan_id, gen_random_uuid(), root_plan_id, 'succeeded', recorded_at, 1, started_at
FROM run, generate_series(1, 5) WHERE started_at < '2025-12-31';
ANALYZE run, plan_execution_record, act_tool_info"""


async def test_analyst_queries_use_indexes(ward: Ward) -> None:
    with psycopg.connect(ward.owner_url, autocommit=True) as owner:
        owner.execute(YEARS.encode())
    with psycopg.connect(ward.url, autocommit=True) as connection:
        for question, index in (
            ("tool_calls WHERE began_at >= '2026-01-01'", "act_tool_info_by_start"),
            ("tool_calls WHERE is_failed", "act_tool_info_failed"),
            ("runs WHERE is_open", "run_open"),
            ("runs WHERE began_at >= '2026-01-01'", "run_by_start"),
            (
                "sub_plans WHERE tool_call_id IS NOT NULL AND began_at >= '2026-01-01'",
                "plan_execution_record_by_start",
            ),
            (f"tool_calls WHERE root_plan_id = '{ward.seen.root}'", "act_tool_info_by_run"),
        ):
            assert index in _plan(connection, f"SELECT * FROM trace.{question}")


async def test_lineage_query_of_an_analyst_reads_rows_of_one_run_only(ward: Ward) -> None:
    with psycopg.connect(ward.url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        of_one = f"SELECT * FROM trace.lineage WHERE root_plan_id = '{ward.seen.root}'"
        plan = _plan(connection, of_one)
    assert f"root_plan_id = '{ward.seen.root}'" in plan
    assert "Recursive Union" in plan, "it is a function that is called for each run"
    assert plan.count("Seq Scan") == plan.count("Seq Scan on analyst")


def _plan(connection: psycopg.Connection, query: str) -> str:
    return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {query}".encode()).fetchall())
