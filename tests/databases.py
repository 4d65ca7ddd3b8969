"""Real Postgres for the tests: one server a run, one migrated template, one clone of it a test."""

import gc
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit
from warnings import catch_warnings

import psycopg
import pytest
from psycopg import sql
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from tests.citus_databases import spread_database, workers_of
from tracer.otel.otlp.blocks import unpack_block
from tracer.storage.embedded import start_embedded_postgres

SERVER_VARIABLE = "TRACER_TEST_DATABASE_URL"
IMAGE = "postgres:18"
ENGINE_SECONDS = 3
"""Timeout of a Docker engine's first answer: a broken engine must not delay the tests."""
RUN_VARIABLE = "TRACER_TEST_RUN"  # what pytest-xdist's workers of one run have in common
TEMPLATE_LOCK = 7_102_018  # any number that the workers agree on

# The data lives as long as the tests: nothing has to survive a loss of power.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_size": "128MB",
    "min_wal_size": "32MB",
}

MEMORY = Path("/dev/shm")
"""A directory that Linux keeps in memory: databases are made and dropped there without a disk."""

ROOM_BYTES = 2**30
"""How much must be free there; a few hundred megabytes are needed."""

_numbers = count(1)

# Both take a checkpoint of the whole server, which was seen to fail while others made databases.
_again = retry(
    retry=retry_if_exception_type(psycopg.errors.InternalError_),
    wait=wait_fixed(0.5),
    stop=stop_after_attempt(5),
    reraise=True,
)


@dataclass(frozen=True)
class Database:
    """A Postgres server that the tests can use."""

    description: str
    """Which server it is, and why it was chosen: one line."""
    start: Callable[[], AbstractContextManager[str]]
    """Start it, return its address, and stop it at the end of the context."""


@cache
def find_database() -> Database:
    """Return the server named by TRACER_TEST_DATABASE_URL, else a container, else an embedded one.

    A container is used if a Docker engine answers. Its API version is negotiated, down to 1.24.
    """
    if url := os.environ.get(SERVER_VARIABLE):
        # SQLAlchemy writes the scheme differently from psycopg.
        url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        return Database(f"the server named by {SERVER_VARIABLE}", lambda: nullcontext(url))

    version, problem = _ask_engine()
    if problem:
        return Database(f"embedded, because no Docker engine answers: {problem}", _embedded_server)
    return Database(f"a container of {IMAGE}, Docker API {version}", _container)


def _ask_engine() -> tuple[str, str]:
    """Return the API version negotiated with the Docker engine, or else why none answers."""
    import docker  # half a second, which pytest-xdist's workers do not need to spend

    # docker-py leaves the socket of a refused connection to the garbage collector.
    with catch_warnings(action="ignore", category=ResourceWarning):
        try:
            with closing(docker.from_env(timeout=ENGINE_SECONDS)) as engine:
                return engine.api.api_version, ""
        except docker.errors.DockerException as error:
            return "", str(error)
        finally:
            gc.collect()


@contextmanager
def open_directory(parent: Path | None = None) -> Iterator[Path]:
    """Give a new directory that the embedded server can enter: as root, it is another user."""
    directory = Path(tempfile.mkdtemp(prefix="tracer-tests-", dir=parent))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _embedded_server() -> Iterator[str]:
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    parent = MEMORY if has_room else None
    with open_directory(parent) as home, start_embedded_postgres(home, SETTINGS) as server:
        yield server.url


@contextmanager
def _container() -> Iterator[str]:
    """Start the official image, published on loopback with a random password.

    Raises:
        pytest.UsageError: The engine cannot start it, for example because it cannot pull an image.
    """
    import docker
    from testcontainers.community.postgres import PostgresContainer

    options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
    container = PostgresContainer(IMAGE, password=secrets.token_urlsafe(), driver=None)
    container.with_command(f"postgres {options}").with_tmpfs_mount("/var/lib/postgresql")
    # Typed for a port alone, but passed on to the engine, which also takes an address.
    cast(dict[str, Any], container.ports)["5432"] = ("127.0.0.1", None)
    try:
        try:
            container.start()
        except docker.errors.DockerException as error:
            raise pytest.UsageError(
                f"The Docker engine answers but cannot start {IMAGE}: {error}. Make the image"
                f" available (docker pull {IMAGE}), set {SERVER_VARIABLE} to a server's address, or"
                " stop the engine; the tests then start an embedded server."
            ) from error
        yield container.get_connection_url(host="127.0.0.1")
    finally:
        container.stop()


def template_name() -> str:
    """Return the name of this run's template."""
    return f"tracer_template_{os.environ.get(RUN_VARIABLE, os.getpid())}"


def create_template(server_url: str) -> str:
    """Create this run's migrated template unless another worker has, and return its name."""
    name = template_name()
    if workers_of(server_url):
        return name  # no database of Citus can be copied
    with psycopg.connect(server_url, autocommit=True) as connection:
        # Held until the connection closes.
        connection.execute("SELECT pg_advisory_lock(%s)", [TEMPLATE_LOCK])
        done = "SELECT 1 FROM pg_database WHERE datname = %s AND datistemplate"
        if connection.execute(done, [name]).fetchone() is None:
            from tracer.storage.postgres.migrate import upgrade

            drop_database(server_url, name)
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            upgrade(with_database(server_url, name))
            alter = sql.SQL("ALTER DATABASE {} IS_TEMPLATE true").format(sql.Identifier(name))
            connection.execute(alter)
    return name


@contextmanager
def fresh_database(server_url: str, template: str = "template0") -> Iterator[str]:
    """Give the address of a new database, a copy of `template`, and drop it afterwards.

    On Citus a migrated one has been emptied instead, and without a template it has no extension.
    """
    if template == template_name() and workers_of(server_url):
        with spread_database(server_url) as url:
            yield url
        return
    name = f"tracer_test_{os.getpid()}_{next(_numbers)}"
    _copy_database(server_url, template, name)
    try:
        yield with_database(server_url, name)
    finally:
        drop_database(server_url, name)


@_again
def _copy_database(server_url: str, template: str, name: str) -> None:
    # By copying files, not by writing each page to the log: it takes half the work.
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))


@_again
def drop_database(server_url: str, name: str) -> None:
    """Drop a database and its remaining connections."""
    identifier = sql.Identifier(name)
    with psycopg.connect(server_url, autocommit=True) as connection:
        is_template = "SELECT 1 FROM pg_database WHERE datname = %s AND datistemplate"
        if connection.execute(is_template, [name]).fetchone():
            connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE false").format(identifier))
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))


def with_database(url: str, name: str) -> str:
    """Return the address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def everything_stored(url: str, besides: str = "") -> str:
    """Return all rows of a database as text, for tests of what must not be in it.

    Args:
        url: The database.
        besides: A schema to leave out.
    """
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname NOT IN (%s, 'pg_catalog', 'information_schema')",
            [besides],
        ).fetchall()
        query = sql.SQL("SELECT row::text || row_to_json(row)::text FROM {} row")
        rows = [
            row
            for names in tables
            for (row,) in connection.execute(query.format(sql.Identifier(*names))).fetchall()
        ]
    return "\n".join([*rows, stored_spans(url).decode("latin-1")])


def stored_spans(url: str) -> bytes:
    """Return the uncompressed messages of all blocks of spans in a database.

    Rows as text show compressed bytes, in which no search finds anything.
    """
    with psycopg.connect(url) as connection:
        blocks = connection.execute("SELECT body FROM public.otel_block").fetchall()
    return b"\n".join(unpack_block(body) for (body,) in blocks)
