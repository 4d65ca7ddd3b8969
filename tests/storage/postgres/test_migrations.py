"""From an empty database to the newest schema, and back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import text

from tests.citus_databases import workers_of
from tests.storage.postgres.catalogs import Catalog, read_catalog
from tracer.errors import ConfigurationError, SchemaOutOfDate, StoreUnavailable, TracerError
from tracer.records import new_id
from tracer.storage.postgres import METADATA, ProjectPool, open_pool
from tracer.storage.postgres.analysts import allow_analysts
from tracer.storage.postgres.migrate import (
    create_views,
    downgrade,
    drop_views,
    head,
    migrating_connection,
    upgrade,
)
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import ANALYSTS_POLICY, POLICY, secure_tables


def test_migrating_up_and_down_leaves_nothing(empty_database_url: str) -> None:
    empty = read_catalog(empty_database_url)
    upgrade(empty_database_url)
    migrated = read_catalog(empty_database_url)
    downgrade(empty_database_url, "base")
    assert read_catalog(empty_database_url) == empty
    upgrade(empty_database_url)
    assert read_catalog(empty_database_url) == migrated


def test_migrations_match_the_table_classes(database_url: str, empty_database_url: str) -> None:
    with migrating_connection(database_url) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        # Defaults are compared by what they come to.
        connection.execute(text("SET tracer.project_id = 1"))
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []
    with migrating_connection(empty_database_url) as connection, connection.begin():
        METADATA.create_all(connection)
        secure_tables(connection, METADATA.sorted_tables)
        connection.execute(text("CREATE SCHEMA trace"))
        allow_analysts(connection)
    expected = read_catalog(empty_database_url)
    if workers_of(database_url):  # Citus takes no policy like that of analysts
        of_all = [row for row in expected["policies"] if row[3] != ANALYSTS_POLICY]
        expected["policies"] = of_all
    assert read_catalog(database_url) == expected


@pytest.mark.thorough
def test_concurrently_starting_servers_migrate_once(empty_database_url: str) -> None:
    errors: list[BaseException] = []

    def migrate() -> None:
        try:
            upgrade(empty_database_url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert found == [(head(),)]


@pytest.fixture
def guest_url(empty_database_url: str) -> Iterator[str]:
    """The address of the same database for a role that has no rights, as analysts have none."""
    name = sql.Identifier(f"guest_{new_id().hex}")
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'guest'").format(name))
        yield make_conninfo(empty_database_url, user=name.as_string()[1:-1], password="guest")
        owner.execute(sql.SQL("DROP OWNED BY {}").format(name))
        owner.execute(sql.SQL("DROP ROLE {}").format(name))


# PREPARE locks a table before anybody asks whether the role may read it.
LOCKS_OF_A_GUEST = """
SELECT pg_advisory_lock(7225020);
BEGIN;
PREPARE reading AS SELECT FROM alembic_version FOR UPDATE;
PREPARE writing AS DELETE FROM alembic_version"""


def test_locks_of_a_role_without_rights_delay_no_migration(
    empty_database_url: str, guest_url: str
) -> None:
    upgrade(empty_database_url)
    with psycopg.connect(guest_url, autocommit=True) as guest:
        guest.execute(LOCKS_OF_A_GUEST)
        upgrade(empty_database_url, lock_seconds=5)


def test_migration_timeout_names_the_session_with_the_lock(
    empty_database_url: str,
) -> None:
    upgrade(empty_database_url)
    name = "weekly report"
    with psycopg.connect(empty_database_url, application_name=name) as reader:
        reader.execute("LOCK TABLE alembic_version")
        with pytest.raises(StoreUnavailable, match=f"process {reader.info.backend_pid} .*{name}"):
            upgrade(empty_database_url, lock_seconds=0.1)
        reader.rollback()
    upgrade(empty_database_url, lock_seconds=5)


def test_migrating_twice_keeps_schema_and_records(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO run VALUES (1, gen_random_uuid(), 'unknown', NULL, NULL, NULL,"
            " NULL, now(), 1, NULL, NULL, NULL, NULL, '{}', NULL, NULL, 0, 0, 0, 0, 0, 'events')"
        )
    upgrade(database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (1,)


def test_upgrade_error_names_views_that_depend_on_replaced_views(
    empty_database_url: str,
) -> None:
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute("DELETE FROM alembic_version")  # as if a migration were missing
        owner.execute("CREATE VIEW patients AS SELECT subject FROM trace.runs")
        before = _views(owner)
        with pytest.raises(ConfigurationError, match=r"view patients depends on view trace\.runs"):
            upgrade(empty_database_url)
        assert _views(owner) == before


def test_replacing_the_views_keeps_the_rights_on_them(
    empty_database_url: str, guest_url: str
) -> None:
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        guest = sql.Identifier(str(conninfo_to_dict(guest_url)["user"]))
        owner.execute(sql.SQL("GRANT SELECT ON trace.runs, trace.plans TO {}").format(guest))
        owner.execute("GRANT SELECT ON trace.runs TO PUBLIC")
        before = _views(owner)
        with migrating_connection(empty_database_url) as connection, connection.begin():
            grants = drop_views(connection)
            create_views(connection, grants)
        assert _views(owner) == before


def _views(connection: psycopg.Connection) -> list[tuple[object, ...]]:
    """Return the views with their definitions and rights."""
    return connection.execute(
        "SELECT relname, pg_get_viewdef(oid), relacl::text FROM pg_class"
        " WHERE relnamespace = to_regnamespace('trace') AND relkind = 'v' ORDER BY relname"
    ).fetchall()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+psycopg"])
def test_every_scheme_of_a_postgres_address_is_accepted(database_url: str, scheme: str) -> None:
    rest = database_url.partition("://")[2]
    url = f"{scheme}://{rest}"
    with migrating_connection(url) as connection:
        assert connection.scalar(text("SELECT current_database()")) in rest
    upgrade(url)


async def test_missing_migrations_raise_schema_out_of_date(
    empty_database_url: str, database_url: str
) -> None:
    async with open_pool(empty_database_url) as pool:
        reader = PostgresReader(ProjectPool(pool))
        with pytest.raises(SchemaOutOfDate):
            await reader.check()
        with pytest.raises(SchemaOutOfDate):
            await reader.find_cancel_requests([])
    async with open_pool(database_url) as pool:
        reader = PostgresReader(ProjectPool(pool))
        await reader.check()
        with psycopg.connect(database_url) as connection:
            connection.execute("UPDATE alembic_version SET version_num = 'unheard of'")
        with pytest.raises(SchemaOutOfDate):
            await reader.check()


def test_database_of_an_unreleased_version_is_refused(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute("UPDATE alembic_version SET version_num = '0028'")
        before = owner.execute("SELECT * FROM project").fetchall()
        with pytest.raises(ConfigurationError, match=r"before the first release\."):
            upgrade(empty_database_url)
        assert owner.execute("SELECT * FROM project").fetchall() == before


def test_migrating_an_unreachable_database_fails_with_an_error(database_url: str) -> None:
    nowhere = urlsplit(database_url)._replace(path="/no_such_database").geturl()
    with pytest.raises(StoreUnavailable) as refusal:
        upgrade(nowhere)
    assert refusal.value.__cause__ is not None


RECORD_TABLES = {
    "run",
    "plan_execution_record",
    "agent_execution_record",
    "think_act_record",
    "act_tool_info",
}

OWN_LOCALITIES = {
    "session_state": "session_id",
    "conversation": "session_key",
    "lease_check": "is_only",
    "recorder_lease": "recorder_id",
    "run_day": "project_id",
    "tool_hour": "project_id",
}
"""What is no part of a run has a locality of its own."""

SHARED_TABLES = {"project", "api_key", "sign_in", "analyst", "model_price"}
"""Small, and the same for all: reference tables on Citus."""


@pytest.fixture
def catalog(database_url: str) -> Catalog:
    return read_catalog(database_url)


def test_schema_meets_the_requirements_of_citus(catalog: Catalog) -> None:
    assert {row[0] for row in catalog["tables"]} == RECORD_TABLES | SHARED_TABLES | {
        "otel_block",
        "otel_session",
        "pending_run",
        "removed_record",
        "run_link",
        "session_state",
        "conversation",
        "lease_check",
        "recorder_lease",
        "recorder_run",
        "run_group",
        "run_part_of_day",
        "run_day",
        "tool_hour",
    }
    assert {row[1] for row in catalog["tables"]} == {"r"}, "a sequence or a view"
    assert catalog["triggers"] == []
    for table, definition, is_unique in catalog["indexes"]:
        locality = OWN_LOCALITIES.get(str(table), "root_plan_id")
        is_local = locality in str(definition) or table in SHARED_TABLES
        assert not is_unique or is_local, (table, definition)
    for table, column, _, _, identity, default, _ in catalog["columns"]:
        assert identity == "", (table, column)
        assert "nextval" not in str(default), (table, column)


def test_foreign_keys_include_the_run_and_are_deferred(catalog: Catalog) -> None:
    references = [
        row for row in catalog["constraints"] if row[2] == "f" and row[0] not in SHARED_TABLES
    ]
    assert len(references) == 17
    for table, name, _, can_wait, waits, is_valid, definition in references:
        assert (can_wait, waits, is_valid) == (True, True, True), (table, name)
        assert str(definition).count("(project_id, root_plan_id") == 2 or str(definition).count(
            "project_id, root_plan_id"
        ), (table, definition)


def test_every_table_with_a_project_has_row_level_security(catalog: Catalog) -> None:
    of_projects = {row[0] for row in catalog["columns"] if row[1] == "project_id"}
    assert len(of_projects) == 22
    assert {row[0] for row in catalog["policies"] if row[3] == POLICY} == of_projects
    assert {row[1] for row in catalog["policies"]} == {True}


def test_every_table_and_column_has_a_comment(catalog: Catalog) -> None:
    assert [row[0] for row in catalog["tables"] if not row[2]] == []
    assert [row[:2] for row in catalog["columns"] if not row[6]] == []


def test_error_names_the_rights_that_a_user_lacks(empty_database_url: str) -> None:
    user = f"plain_{new_id().hex}"
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'plain'").format(sql.Identifier(user)))
        owner.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(sql.Identifier(user)))
        try:
            with pytest.raises(ConfigurationError, match=r"permission denied for database .*GRANT"):
                upgrade(make_conninfo(empty_database_url, user=user, password="plain"))
            assert owner.execute("SELECT to_regclass('run')").fetchone() == (None,)
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(user)))
            owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        (
            "postgresql://u:hidden@127.0.0.1:{port}/x",
            StoreUnavailable,
            "failed: Connection refused",
        ),
        ("postgresql://127.0.0.1:1/x?nonsense=1", ConfigurationError, "postgresql://USER"),
        ("postgresql:///x?host=/nowhere", StoreUnavailable, "/nowhere"),
    ],
)
def test_unreachable_database_is_reported_with_the_reason(
    url: str, error: type[TracerError], said: str
) -> None:
    with socket.socket() as bound:  # it does not listen, and no other program can
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(error) as raised:
            upgrade(url.format(port=bound.getsockname()[1]))
    assert said in str(raised.value)
    assert "hidden" not in str(raised.value)
