"""Row-level security of the server's database role, and the report if the role is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.otel.made_traces import spans_from, tool
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.sample_runs import sample_run
from tracer.errors import RecordNotFound, TracerError
from tracer.records.access import Scope
from tracer.storage.postgres import Pool, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.keys import ApiKeys
from tracer.storage.postgres.migrate import upgrade
from tracer.storage.postgres.pool import pooled_connection
from tracer.storage.postgres.project_stores import ProjectStores
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import PROGRAM_ROLE, executed, fetched, in_project, in_snapshot
from tracer.store import RunFilter

WHO = "SELECT current_user::text, current_setting('tracer.project_id', true)"


async def test_released_connection_keeps_no_project(pool: Pool) -> None:
    project = ProjectPool(pool, 7)

    async def of_writer() -> Any:
        async with pooled_connection(pool) as connection:
            return await (await connection.execute(WHO)).fetchone()

    def of_reader() -> Any:
        return pool.readers.run(lambda connection: connection.execute(WHO).fetchone())

    async with in_project(project) as connection:
        assert await (await connection.execute(WHO)).fetchone() == (PROGRAM_ROLE, "7")
    assert await executed(project, [(WHO, [])]) == [[(PROGRAM_ROLE, "7")]]
    assert await fetched(project, WHO) == [(PROGRAM_ROLE, "7")]
    with pytest.raises(RecordNotFound):
        async with in_project(project):
            raise RecordNotFound("run", 1)
    with pytest.raises(RecordNotFound):
        await in_snapshot(project, lambda _: raised(RecordNotFound("run", 1)))
    for user, project_id in (await of_writer(), await of_reader()):
        assert user != PROGRAM_ROLE
        assert project_id in (None, "")


def raised(error: Exception) -> None:
    raise error


async def test_error_in_a_transaction_rolls_back_its_write(pool: Pool) -> None:
    async def fail() -> None:
        async with in_project(ProjectPool(pool)) as connection:
            await connection.execute("INSERT INTO session_state VALUES (1, 's', '{}', 1, now())")
            raise TracerError("no")

    with pytest.raises(TracerError):
        await fail()
    async with in_project(ProjectPool(pool)) as connection:
        cursor = await connection.execute("SELECT count(*) FROM session_state")
        assert await cursor.fetchone() == (0,)


async def test_program_role_accesses_only_its_project_and_no_key_digests(pool: Pool) -> None:
    made_key = await ApiKeys(ProjectPool(pool)).create("k", [Scope.READ])
    for statement in (
        "INSERT INTO session_state VALUES (2, 's', '{}', 1, now())",
        "SELECT digest FROM api_key",
        "SELECT * FROM sign_in",
        "UPDATE api_key SET scopes = '{admin}'",
        "UPDATE project SET name = 'mine'",
        "CREATE TABLE mine ()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with in_project(ProjectPool(pool)) as connection:
                await connection.execute(statement)
    assert made_key.key.scopes == [Scope.READ]


async def test_transaction_without_a_project_sees_no_rows(pool: Pool) -> None:
    async def forget() -> None:
        async with pooled_connection(pool) as connection, connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {PROGRAM_ROLE}")
            await connection.execute("SELECT * FROM run")

    with pytest.raises((psycopg.errors.UndefinedObject, psycopg.errors.InvalidTextRepresentation)):
        await forget()


async def test_rows_written_by_copy_belong_to_the_project_of_the_transaction(pool: Pool) -> None:
    spans = spans_from(*(tool(number, "a tool") for number in range(1, 100)))
    await postgres_writer(ProjectPool(pool, 7)).write_spans(traces_of(spans))
    await project_in(pool)

    async with pooled_connection(pool) as connection:
        cursor = await connection.execute(
            "SELECT project_id, count(*) FROM act_tool_info GROUP BY 1"
        )
        assert await cursor.fetchall() == [(7, len(spans))]


@pytest.mark.parametrize("column", ["name", "provider_call_id"])
async def test_names_are_found_by_index_under_row_level_security(pool: Pool, column: str) -> None:
    query = (
        f"EXPLAIN SELECT FROM act_tool_info AS call WHERE project_id = 1"
        f" AND {column}::name = 'x'::text::name AND {column} = 'x'"
    )
    async with in_project(ProjectPool(pool)) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in await (await connection.execute(query)).fetchall())
    condition = next(line for line in plan.splitlines() if "Index Cond" in line)
    assert f"({column})::name" in condition


@pytest.fixture
def plain_user(empty_database_url: str) -> Iterator[str]:
    """The address of a database whose user may not make roles, nor become the program's."""
    name = "tracer_plain_user"
    owner = sql.Identifier(name)
    database = sql.Identifier(urlsplit(empty_database_url).path[1:])
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(owner))
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'plain'").format(owner))
        connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, owner))
    parts = urlsplit(empty_database_url)
    server = parts.netloc.rpartition("@")[2]
    yield parts._replace(netloc=f"{name}:plain@{server}").geturl()
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        current = sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(owner)
        connection.execute(current)
        connection.execute(sql.SQL("DROP OWNED BY {}").format(owner))
        connection.execute(sql.SQL("DROP ROLE {}").format(owner))


async def test_missing_role_membership_is_reported_and_fixed_without_restart(
    plain_user: str, empty_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        if connection.execute(f"SELECT to_regrole('{PROGRAM_ROLE}')").fetchone() == (None,):
            connection.execute(f"CREATE ROLE {PROGRAM_ROLE} NOLOGIN")
    upgrade(plain_user)
    async with open_pool(plain_user) as pool, ProjectStores(pool) as stores:
        await stores.warn_without_row_security()
        assert "row_level_security_off" in caplog.text
        assert not await stores.is_walled()
        run = sample_run()
        await postgres_writer(ProjectPool(pool)).write(run.events)

        with psycopg.connect(empty_database_url, autocommit=True) as connection:
            connection.execute(f"GRANT {PROGRAM_ROLE} TO tracer_plain_user WITH INHERIT FALSE")
        upgrade(plain_user)

        assert await stores.is_walled()
        page = await PostgresReader(ProjectPool(pool)).list_runs(RunFilter(), 10, None)
        assert [each.root_plan_id for each in page.items] == [run.root]
