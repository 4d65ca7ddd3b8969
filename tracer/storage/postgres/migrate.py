"""Migrations: they bring the schema of a database to the version that this code needs.

The scripts are in `migrations/`; the wheel `tracer-lineage-server` has them in its package.
`views.sql` creates the views of the schema `trace` after every upgrade, which drops them first.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import SetColumnComment, SetTableComment

from tracer.errors import ConfigurationError, SchemaOutOfDate, StoreUnavailable
from tracer.storage.postgres import citus
from tracer.storage.postgres.analysts import allow_analysts, end_analyst_sessions
from tracer.storage.postgres.pool import PoolConnection, connection_options, store_errors
from tracer.storage.postgres.session import VIEWS_SCHEMA, secure_tables
from tracer.storage.postgres.tables import METADATA

VIEWS_FILE = Path(__file__).with_name("views.sql")


_GRANTS = """
SELECT format(
    'GRANT %s ON %s TO %s%s', privilege_type, view.oid::regclass,
    CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
    CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END
)
FROM pg_class AS view, aclexplode(view.relacl)
WHERE view.relnamespace = to_regnamespace(:schema) AND view.relkind = 'v' AND grantee <> relowner"""


# As Alembic creates it.
_VERSION_TABLE = """
CREATE TABLE alembic_version (
    version_num varchar(32) NOT NULL CONSTRAINT alembic_version_pkc PRIMARY KEY
)"""

# A holder of the lock is older than the wait for it. The age of other users' transactions is
# visible to superusers and members of `pg_read_all_stats` only.
_HOLDERS = """
SELECT pid, usename, application_name, bool_or(
    relation = to_regclass('alembic_version')
    AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
) AS migrates
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE granted AND locktype = 'relation' AND relation >= 16384  -- no catalog
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND pid <> pg_backend_pid()
    AND coalesce(xact_start <= now() - make_interval(secs => :seconds), true)
GROUP BY pid, usename, application_name, xact_start ORDER BY migrates DESC, xact_start LIMIT 5"""


def drop_views(connection: Connection) -> list[str]:
    """Drop the views, and return statements that restore the rights that were granted on them.

    Args:
        connection: A connection of the views' owner, in a transaction. The views may be missing.

    Raises:
        ConfigurationError: Other objects depend on the views. The message names them.
    """
    grants = list(connection.scalars(text(_GRANTS), {"schema": VIEWS_SCHEMA}))
    names = re.findall(r"^CREATE VIEW (\S+)", VIEWS_FILE.read_text("utf-8"), re.MULTILINE)
    try:
        connection.execute(text(f"DROP VIEW IF EXISTS {', '.join(names)}"))
        connection.execute(text(f"DROP FUNCTION IF EXISTS {VIEWS_SCHEMA}.lineage_of(uuid)"))
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.DependentObjectsStillExist):
            raise
        detail = "; ".join((error.orig.diag.message_detail or "").splitlines())
        raise ConfigurationError(
            f"The upgrade replaces the views of the schema {VIEWS_SCHEMA}, and other objects "
            f"depend on them: {detail}. Drop these objects, upgrade with `tracer migrate`, and "
            "create them again. Nothing was changed."
        ) from error
    return grants


def create_views(connection: Connection, grants: list[str]) -> None:
    """Create the views with their comments, and grant the rights that `drop_views` returned.

    Args:
        connection: A connection of the tables' owner, in a transaction. The tables must exist.
        grants: Statements to execute afterwards.
    """
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    driver.execute(VIEWS_FILE.read_bytes())  # SQLAlchemy sends one statement at a time
    for grant in grants:
        connection.execute(text(grant))


MINIMUM_SERVER_VERSION = 180_000

LOCK_SECONDS = 60.0
"""How long a migration waits for a lock, by default."""


def upgrade(url: str, revision: str = "head", lock_seconds: float = LOCK_SECONDS) -> None:
    """Migrate up to `revision`, in one transaction; several servers may do so at once.

    Args:
        url: The database.
        revision: The revision to reach.
        lock_seconds: How long to wait for each lock.

    Raises:
        StoreUnavailable: The database does not answer, or other sessions held a lock for too long.
            The message names them.
        ConfigurationError: The server is older than PostgreSQL 18, or the user may not migrate.
    """
    with _locked(url, lock_seconds) as (connection, config):
        before = _current(connection)
        grants = _without_views(connection) if before != head() else []
        command.upgrade(config, revision)
        after = MigrationContext.configure(connection).get_current_revision()
        if after == head():
            is_spread = citus.spread(connection)
            secure_tables(connection, METADATA.sorted_tables)
            if after != before or is_spread:
                _comment(connection)
                create_views(connection, grants)
            if citus.is_there(connection):
                citus.authorize_program(connection)
            else:  # Citus takes no policy that looks into another table
                allow_analysts(connection)


@dataclass(frozen=True)
class MigrationStep:
    """A migration that a database lacks."""

    revision: str
    title: str


@dataclass(frozen=True)
class MigrationPlan:
    """The migrations that `upgrade` would run."""

    current: str | None
    """The revision of the database; None: it is empty."""
    steps: list[MigrationStep]


def plan_upgrade(url: str) -> MigrationPlan:
    """Return the migrations that a database lacks, in order. Changes and locks nothing.

    Raises:
        StoreUnavailable: The database does not answer.
        ConfigurationError: The schema of the database is newer than this program, or older than
            the first release.
    """
    with store_errors(), migrating_connection(url) as connection:
        current = _current(connection)
    scripts = ScriptDirectory.from_config(_config())
    missing = scripts.iterate_revisions("head", current or "base")
    steps = [MigrationStep(each.revision, each.doc.partition("\n")[0]) for each in missing]
    return MigrationPlan(current, steps[::-1])


def _current(connection: Connection) -> str | None:
    """Return the revision of a database; None if it is empty.

    Raises:
        ConfigurationError: This program does not know the revision, because it is newer or
            older than the first release.
    """
    revision = MigrationContext.configure(connection).get_current_revision()
    known = {each.revision for each in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision < min(known):
        raise ConfigurationError(
            "This database was created before the first release. Create a new one."
        )
    if revision is not None and revision not in known:
        raise ConfigurationError(
            f"The database's schema has version {revision}, which a newer Tracer created. This "
            f"version of Tracer supports versions up to {head()}. Upgrade tracer-lineage-server. "
            "Nothing was changed."
        )
    return revision


def downgrade(url: str, revision: str) -> None:
    """Migrate down to `revision` and drop the views; `base` also drops all records."""
    with _locked(url) as (connection, config):
        _without_views(connection)
        command.downgrade(config, revision)


def _without_views(connection: Connection) -> list[str]:
    """Drop the views, and return statements that restore the rights on them."""
    end_analyst_sessions(connection)
    return drop_views(connection)


async def check_schema(connection: PoolConnection) -> None:
    """Check that the database has the schema that this code needs.

    Raises:
        SchemaOutOfDate: The database has another schema, or none.
    """
    cursor = await connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL")
    if await cursor.fetchone() != (True,):
        raise SchemaOutOfDate()
    cursor = await connection.execute("SELECT version_num FROM alembic_version")
    if await cursor.fetchall() != [(head(),)]:
        raise SchemaOutOfDate()


def _comment(connection: Connection) -> None:
    """Write the docstrings of tables and columns as SQL comments: analysts read them in psql."""
    for table in METADATA.sorted_tables:
        connection.execute(SetTableComment(table))
        for column in table.columns:
            if column.comment:
                connection.execute(SetColumnComment(column))


@cache
def head() -> str:
    """Return the revision that this code needs."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    if newest is None:
        raise ConfigurationError(f"There are no migrations in {_scripts()}.")
    return newest


def _scripts() -> Path:
    server = importlib.util.find_spec("tracer_server")  # by name: nothing here imports the server
    in_wheel = server and server.origin and Path(server.origin).with_name("migrations")
    if in_wheel and in_wheel.is_dir():
        return in_wheel
    return Path(__file__).parents[3] / "migrations"


def _config() -> Config:
    config = Config()
    # A percent sign in a path is no interpolation.
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    return config


@contextmanager
def _locked(url: str, lock_seconds: float = LOCK_SECONDS) -> Iterator[tuple[Connection, Config]]:
    with (
        store_errors(),
        migrating_connection(url) as connection,
        _holders_named(connection, lock_seconds),
        connection.begin(),
    ):
        version = connection.scalar(text("SHOW server_version_num"))
        if int(str(version)) < MINIMUM_SERVER_VERSION:
            raise ConfigurationError(
                f"Tracer needs PostgreSQL 18 or newer; the server's version is {version}."
            )
        config = _config()
        config.attributes["connection"] = connection
        with _missing_rights_explained():
            _lock(connection, lock_seconds)
            citus.use_one_connection_per_worker(connection)
            yield connection, config


def _lock(connection: Connection, lock_seconds: float) -> None:
    """Wait until other migrations have ended, and block new ones until this transaction ends.

    An advisory lock is not used, because every role that can connect could hold it forever. The
    mode SHARE UPDATE EXCLUSIVE requires the right to write to the table. Roles without this right
    can only take weaker locks, by PREPARE, which do not conflict with this mode.
    """
    timeout = {"timeout": f"{max(1, round(lock_seconds * 1000))}ms"}
    connection.execute(text("SELECT set_config('lock_timeout', :timeout, true)"), timeout)
    if connection.scalar(text("SELECT to_regclass('alembic_version') IS NULL")):
        try:
            with connection.begin_nested():
                connection.execute(text(_VERSION_TABLE))
        except IntegrityError:
            pass  # another server created it first, and has committed
    connection.execute(text("LOCK TABLE alembic_version IN SHARE UPDATE EXCLUSIVE MODE"))


@contextmanager
def _holders_named(connection: Connection, lock_seconds: float) -> Iterator[None]:
    """Translate a lock timeout into an error that names the sessions that hold the locks.

    Raises:
        StoreUnavailable: A lock was not available within `lock_seconds`.
    """
    try:
        yield
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
            raise
        holders = connection.execute(text(_HOLDERS), {"seconds": lock_seconds}).fetchall()
        of_migrations = [holder for holder in holders if holder.migrates]
        names = ", ".join(
            f"process {each.pid} (user {each.usename}, application {each.application_name!r})"
            for each in of_migrations or holders
        )
        raise StoreUnavailable(
            f"The migration waited {lock_seconds:g} s for a lock and was rolled back. "
            f"{names or 'A session that has ended'} held locks in this database. End those "
            "transactions, for example with SELECT pg_terminate_backend(…), and run "
            "`tracer migrate` again."
        ) from error


@contextmanager
def _missing_rights_explained() -> Iterator[None]:
    """Translate Postgres's error for a missing right into an error with advice.

    Raises:
        ConfigurationError: The database's user lacks a right.
    """
    try:
        yield
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise
        raise ConfigurationError(
            f"The database's user may not migrate: {error.orig.diag.message_primary}. Let it own "
            "the database (ALTER DATABASE … OWNER TO …), or GRANT CREATE ON DATABASE … and "
            "ON SCHEMA public TO it. Nothing was changed."
        ) from error


@contextmanager
def migrating_connection(url: str) -> Iterator[Connection]:
    """Yield an SQLAlchemy connection to the database at `url`.

    Raises:
        ConfigurationError: `url` is not the address of a Postgres.
        StoreUnavailable: The database does not accept the connection.
    """
    # libpq reads the address: SQLAlchemy's reading of sockets and options differs.
    options = connection_options(url) | {"autocommit": False}
    creator = partial(psycopg.connect, **options)
    engine = create_engine("postgresql+psycopg://", creator=creator, poolclass=NullPool)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(engine.connect())
        except OperationalError as error:
            # The user who migrates knows the address, so the error may name it.
            reason = str(error.orig).partition("\n")[0].removeprefix("connection failed: ")
            raise StoreUnavailable(
                f"The database cannot be reached: {reason.rstrip('.')}. Start Postgres, or set "
                "TRACER_DATABASE_URL to its address. Without this variable, the server starts a "
                "Postgres of its own."
            ) from error
        yield connection
