"""Real Postgres for the tests: one server a run, one migrated template, one clone of it a test."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from tests.citus_databases import spread_database, workers_of
from tracer.storage.embedded_postgres import start_embedded_postgres

SERVER_VARIABLE = "TRACER_TEST_DATABASE_URL"
IMAGE = "postgres:18"
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


@contextmanager
def postgres_server() -> Iterator[str]:
    """Give the address of a server: the one named, else a container, else an embedded one."""
    with ExitStack() as stack:
        url = (
            os.environ.get(SERVER_VARIABLE)
            or _start_container(stack)
            or stack.enter_context(_embedded_server())
        )
        # SQLAlchemy's spelling is not psycopg's.
        yield url.replace("postgresql+psycopg://", "postgresql://", 1)


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


def _start_container(stack: ExitStack) -> str | None:
    """Start the official image, or return None where that can't be had."""
    import docker

    try:
        # Bounds on each answer: a broken engine must not hold the tests up. With a version given
        # the client asks nothing while it is made, when a failure would leave a socket open.
        with docker.from_env(timeout=3, version="1.44") as engine:
            engine.ping()
        with docker.from_env(timeout=60, version="1.44") as engine:
            if not engine.images.list(IMAGE):
                engine.images.pull(IMAGE)
        from testcontainers.community.postgres import PostgresContainer

        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        container = PostgresContainer(IMAGE, driver=None).with_command(f"postgres {options}")
        return str(stack.enter_context(container).get_connection_url())
    except Exception:  # whatever it is, the embedded server does as well
        return None


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
            from tracer.storage.migrate import upgrade

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
    """Drop a database, whoever is still connected to it."""
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
        return "\n".join(
            row
            for names in tables
            for (row,) in connection.execute(query.format(sql.Identifier(*names))).fetchall()
        )
