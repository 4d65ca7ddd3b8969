"""Databases on Citus for the tests: copying a template is not possible there.

A database needs the extension on every node, and its tables spread: seconds. So each process keeps
those that it made, and empties them after each test, unless the test changed the schema.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tracer.storage.postgres import METADATA

Node = tuple[str, int]
"""A host and a port."""

SHARDS = 4
"""How many there are in a database of a test: each has tables of its own, which take time."""

_free: dict[str, list[str]] = {}
_schemas: dict[str, object] = {}
"""The result of `_schema` after a database was made. A changed database is not used again."""
_numbers = count(1)


@cache
def workers_of(server_url: str) -> list[Node]:
    """Return the workers of a coordinator's database; empty without Citus."""
    with psycopg.connect(server_url) as connection:
        if connection.execute("SELECT to_regclass('pg_dist_node')").fetchone() == (None,):
            return []
        found = connection.execute(
            "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 ORDER BY nodeport"
        )
        return [(host, port) for host, port in found.fetchall()]


@cache
def tests_run_on_citus() -> bool:
    """Return whether the tests' server is the coordinator of a cluster."""
    url = os.environ.get("TRACER_TEST_DATABASE_URL")
    return url is not None and bool(
        workers_of(url.replace("postgresql+psycopg://", "postgresql://"))
    )


on_one_postgres = pytest.mark.skipif(
    tests_run_on_citus(), reason="differs on Citus (docs/guides/citus.md)"
)
"""Marks tests of plans, of statements, and of criteria of lists that Citus does not support."""

without_analysts = pytest.mark.skipif(
    tests_run_on_citus(), reason="on Citus nobody can be an analyst (decision 24)"
)
"""Marks tests of analysts and their wall."""


@contextmanager
def spread_database(server_url: str) -> Iterator[str]:
    """Give the address of a migrated database with no records, for one test at a time."""
    free = _free.setdefault(server_url, [])
    url = free.pop() if free else _made(server_url)
    try:
        yield url
    finally:
        if _schema(url) == _schemas[url]:
            _empty(url)
            free.append(url)
        else:
            drop_cluster_database(server_url, urlsplit(url).path[1:])


def _made(server_url: str) -> str:
    from tracer.storage.postgres.migrate import upgrade

    name = f"tracer_citus_{os.getpid()}_{next(_numbers)}"
    url = new_cluster_database(server_url, name)
    atexit.register(drop_cluster_database, server_url, name)
    upgrade(url)
    _schemas[url] = _schema(url)
    return url


def new_cluster_database(server_url: str, name: str) -> str:
    """Make a database with the extension on all nodes, and return the coordinator's address."""
    url = on_all_nodes(server_url, name)
    make_cluster(url, workers_of(server_url))
    return url


def on_all_nodes(server_url: str, name: str) -> str:
    """Make an empty database on all nodes, and return the coordinator's address."""
    for url in (server_url, *(_on(server_url, node) for node in workers_of(server_url))):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET citus.enable_create_database_propagation TO off")
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        if url != server_url:
            with psycopg.connect(_database(url, name), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION citus")
    return _database(server_url, name)


def make_cluster(url: str, nodes: list[Node]) -> None:
    """Give a database the extension, and the same database of other nodes as workers."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION citus")
        name = sql.Identifier(urlsplit(url).path[1:])
        few = sql.SQL("ALTER DATABASE {} SET citus.shard_count TO {}")
        connection.execute(few.format(name, sql.Literal(SHARDS)))
        coordinator = urlsplit(url)
        here = [coordinator.hostname, coordinator.port]
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", here)
        for node in nodes:
            connection.execute("SELECT citus_add_node(%s, %s)", node)


def drop_cluster_database(server_url: str, name: str) -> None:
    """Drop a database on all nodes."""
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    for url in (server_url, *(_on(server_url, node) for node in workers_of(server_url))):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET citus.enable_create_database_propagation TO off")
            connection.execute(drop)


def _empty(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        # In one connection to each worker: what refers to each other goes together.
        connection.execute("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'")
        for table in METADATA.sorted_tables[::-1]:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))
        connection.execute("INSERT INTO project VALUES (1, 'default', now())")
        connection.execute("INSERT INTO lease_check VALUES (true)")
        for (schema,) in connection.execute(_OWN_SCHEMAS).fetchall():
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def _schema(url: str) -> object:
    with psycopg.connect(url) as connection:
        return connection.execute(_SCHEMA).fetchone()


_SCHEMA = """
SELECT md5(string_agg(line, chr(10) ORDER BY line)) FROM (
    SELECT concat_ws(' ', oid::regclass, relkind, relowner, relacl, relrowsecurity)
    FROM pg_class WHERE relnamespace IN ('public'::regnamespace, to_regnamespace('trace'))
    UNION ALL SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)
    FROM information_schema.columns WHERE table_schema IN ('public', 'trace')
    UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
    FROM pg_constraint
    UNION ALL SELECT concat_ws(' ', tgrelid::regclass, tgname, tgenabled) FROM pg_trigger
    WHERE NOT tgisinternal
    UNION ALL SELECT concat_ws(' ', polrelid::regclass, polname, polqual) FROM pg_policy
    UNION ALL SELECT concat_ws(' ', setrole, setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT version_num FROM alembic_version
) AS state (line)"""

_OWN_SCHEMAS = """
SELECT nspname FROM pg_namespace
WHERE nspname NOT IN ('public', 'trace', 'information_schema') AND NOT starts_with(nspname, 'pg_')
    AND NOT EXISTS (
        SELECT FROM pg_depend WHERE objid = pg_namespace.oid AND deptype = 'e'
    )"""
"""Those that a test's application made."""


def _on(url: str, node: Node) -> str:
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@{node[0]}:{node[1]}"))


def _database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
