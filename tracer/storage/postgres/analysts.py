"""Analysts: database roles that read the records of one project by SQL, and nothing else.

An analyst inherits its rights from `tracer_reader`. The table `analyst` maps each role to its
project, and a row-level policy on every readable table looks it up there.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from psycopg import AsyncConnection, DatabaseError, errors, sql
from sqlalchemy import Connection, text

from tracer.errors import BadRequest, ConfigurationError
from tracer.logs import get_logger
from tracer.storage.postgres.pool import Pool, PoolConnection, pooled_connection, store_errors
from tracer.storage.postgres.projects import project_id_of
from tracer.storage.postgres.session import ANALYSTS_POLICY, VIEWS_SCHEMA, make_role, secured_tables

READER_ROLE = "tracer_reader"

READABLE = (
    "run",
    "plan_execution_record",
    "agent_execution_record",
    "think_act_record",
    "act_tool_info",
    "otel_block",
    "pending_run",
    "recorder_lease",
    "recorder_run",
    "conversation",
    "project",
    "analyst",
    "model_price",
)
"""The tables that analysts may read. They do not include keys, sign-ins and session state."""

CONNECTIONS = 10
"""How many connections an analyst may have at once."""

LONGEST_NAME = 63
"""The longest name of a role in bytes. Postgres truncates longer names."""

TERMINATION_MS = 5000
"""How many milliseconds to wait for a terminated session to end."""

_URL_PARAMETERS = {"sslmode", "sslrootcert", "channel_binding", "hostaddr", "target_session_attrs"}
"""The connection parameters that are copied from the owner's URL into an analyst's URL."""

log = get_logger(__name__)


_LARGE_OBJECT_FUNCTIONS = r"""
SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^(lo_.*|loread|lowrite)$'
    AND has_function_privilege('public', oid, 'EXECUTE') AND pg_has_role(proowner, 'USAGE')"""

# Other memberships and rights would let a role read other projects. A role that cannot log in may
# be the program's own, which would then read the analyst's project from every other.
_GAP = f"""
SELECT NOT role.rolcanlogin OR role.rolsuper OR role.rolbypassrls OR role.rolreplication
    OR role.rolcreaterole
    OR EXISTS (
        SELECT FROM pg_auth_members AS membership
        WHERE membership.member = role.oid AND membership.roleid::regrole::text <> '{READER_ROLE}'
    )
    OR EXISTS (SELECT FROM pg_class WHERE oid = 'run'::regclass AND relowner = role.oid)
FROM pg_roles AS role WHERE role.rolname = %s"""

_END_SESSIONS = """
SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity
WHERE usename = %s AND (datname = current_database() OR %s) AND pg_has_role(usesysid, 'USAGE')"""

_END_ALL_SESSIONS = """
SELECT pg_terminate_backend(pid, :milliseconds)
FROM pg_stat_activity JOIN analyst ON usename = role_name
WHERE datname = current_database() AND pg_has_role(usesysid, 'USAGE')"""

_OWNED = """
SELECT pg_describe_object(classid, objid, objsubid) FROM pg_shdepend
WHERE refclassid = 'pg_authid'::regclass AND deptype = 'o'
    AND refobjid = (SELECT oid FROM pg_roles WHERE rolname = %s)
    AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1 LIMIT 10"""

_HAS_POLICY = "SELECT 1 FROM pg_policy WHERE polname = %s"

_ROLE_EXISTS = "SELECT 1 FROM pg_roles WHERE rolname = %s"

_MAY_WRITE_LARGE_OBJECTS = "SELECT has_function_privilege(%s, 'lo_create(oid)', 'EXECUTE')"

_IS_ANALYST = "SELECT 1 FROM analyst WHERE role_name = %s"

_INSERT = "INSERT INTO analyst VALUES (%s, %s, %s)"

_DELETE = """
DELETE FROM analyst USING project
WHERE analyst.project_id = project.project_id AND role_name = %s
RETURNING role_name, project.name, was_made"""

_LIST = """
SELECT role_name, project.name, was_made FROM analyst JOIN project USING (project_id)
ORDER BY project.name, role_name"""


@dataclass(frozen=True)
class Analyst:
    """A role that reads one project."""

    role: str
    project: str
    was_made: bool
    """Whether `add_analyst` created the role. If so, `remove_analyst` drops it."""


@dataclass(frozen=True)
class NewAnalyst(Analyst):
    """An analyst that has just been added."""

    password: str | None
    """The password, if `add_analyst` created the role. It is stored nowhere. None if the role
    existed before: it keeps its own password."""
    url: str
    """The database's address for the analyst, with the password."""


def allow_analysts(connection: Connection) -> None:
    """Create the role of analysts, their policies and their rights, unless they exist.

    Runs in the caller's transaction, after every migration.

    Args:
        connection: A connection of the owner of the tables and views. All of these must exist.
    """
    if not make_role(connection, READER_ROLE):
        log.info("no_role_for_analysts", detail=f"A superuser may: CREATE ROLE {READER_ROLE}")
        return
    secured = secured_tables(connection, ANALYSTS_POLICY)
    for table in READABLE:
        if table not in secured:
            # As a scalar subquery, the project is looked up once and can choose an index.
            condition = (
                "role_name = current_user"
                if table == "analyst"
                else "project_id = (SELECT project_id FROM analyst WHERE role_name = current_user)"
            )
            connection.execute(text(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"))
            connection.execute(
                text(
                    f"CREATE POLICY {ANALYSTS_POLICY} ON {table} FOR SELECT TO {READER_ROLE}"
                    f" USING ({condition})"
                )
            )
        connection.execute(text(f"GRANT SELECT ON {table} TO {READER_ROLE}"))
    schema = connection.scalar(text("SELECT quote_ident(current_schema)"))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema}, {VIEWS_SCHEMA} TO {READER_ROLE}"))
    connection.execute(
        text(f"GRANT SELECT ON ALL TABLES IN SCHEMA {VIEWS_SCHEMA} TO {READER_ROLE}")
    )
    # Every role may write large objects until this is revoked.
    if functions := connection.scalar(text(_LARGE_OBJECT_FUNCTIONS)):
        connection.execute(text(f"REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC"))


def end_analyst_sessions(connection: Connection) -> None:
    """End the sessions of analysts, which may lock tables and views in open transactions.

    If the database's user is no superuser, it can only end sessions of roles that it created. Other
    sessions continue.
    """
    if connection.scalar(text("SELECT to_regclass('analyst') IS NOT NULL")):
        connection.execute(text(_END_ALL_SESSIONS), {"milliseconds": TERMINATION_MS})


async def add_analyst(pool: Pool, role: str, project: str) -> NewAnalyst:
    """Let a role read one project, and nothing else. Create the role if it does not exist.

    Args:
        pool: Connections as the owner of the tables.
        role: The role's name.
        project: The project's name.

    Raises:
        BadRequest: The role is an analyst already, cannot be created with that name, cannot log in,
            or has rights or memberships with which it could read other projects.
        ConfigurationError: The project does not exist, analysts are not possible in this database,
            or its user may not create roles.
        StoreUnavailable: The database does not answer.
    """
    if len(role.encode()) > LONGEST_NAME:  # Postgres would cut it
        raise BadRequest(f"The name of a role must not exceed {LONGEST_NAME} bytes.")
    project_id = await project_id_of(pool, project)
    with store_errors(), _explained(role):
        async with pooled_connection(pool) as connection, connection.transaction():
            if not await _one(connection, _HAS_POLICY, ANALYSTS_POLICY):
                raise ConfigurationError(
                    "This database has no policies for analysts. Citus does not support them: with "
                    "Citus, give analysts a copy of the data on one Postgres. Without Citus, run "
                    "`tracer migrate` as a user that may create roles."
                )
            if await _one(connection, _IS_ANALYST, role):
                raise BadRequest(f"{role!r} is an analyst already: remove it first.")
            password = None
            gap = await _one(connection, _GAP, role)
            if gap is None:
                password = secrets.token_urlsafe(24)
                await _create(connection, role, password)
            elif gap[0]:
                raise BadRequest(
                    f"The role {role!r} cannot be an analyst: it cannot log in, or its rights or "
                    "memberships in roles allow more than to read one project. Name another role, "
                    "or a new role, which this command creates."
                )
            grant = "GRANT {} TO {} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE"
            await _on_roles(connection, grant, READER_ROLE, role)
            await connection.execute(_INSERT, [role, project_id, password is not None])
            if (await _one(connection, _MAY_WRITE_LARGE_OBJECTS, role)) == (True,):
                log.warning(
                    "analyst_may_write_large_objects",
                    role=role,
                    detail="Run `tracer migrate` once as a superuser: it revokes that right.",
                )
            url = _url_for(connection, role, password)
    return NewAnalyst(role, project, password is not None, password, url)


async def remove_analyst(pool: Pool, role: str) -> Analyst:
    """Revoke an analyst's access and end its sessions; drop the role if `add_analyst` created it.

    Each step has a separate transaction. So access remains revoked if a later step fails. Objects
    that the role owns are never dropped.

    Args:
        pool: Connections as the owner of the tables.
        role: The role's name.

    Raises:
        BadRequest: The role is no analyst, or it owns objects and cannot be dropped. The message
            names them.
        ConfigurationError: The database's user may not change roles.
        StoreUnavailable: The database does not answer.
    """
    with store_errors(), _explained(role):
        async with pooled_connection(pool) as connection:
            row = await _one(connection, _DELETE, role)
            if row is None:
                raise BadRequest(f"{role!r} is no analyst. `tracer analysts list` shows all.")
            removed = Analyst(*row)
            if await _one(connection, _ROLE_EXISTS, role):
                with _access_revoked(role):
                    await _on_roles(connection, "REVOKE {} FROM {}", READER_ROLE, role)
                    if removed.was_made:
                        await _drop(connection, role)
                    else:
                        await _end_sessions(connection, role, everywhere=False)
    return removed


async def run_query(url: str, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of one SQL statement, which an analyst executes.

    Args:
        url: The URL with which the analyst connects.
        query: The statement.

    Raises:
        BadRequest: Postgres rejects the statement, or it returns no rows.
        StoreUnavailable: The database does not answer.
    """
    with store_errors():
        async with await AsyncConnection.connect(
            url, autocommit=True, options="-c default_transaction_read_only=on"
        ) as connection:
            try:
                cursor = await connection.execute(query.encode(), prepare=True)
            except DatabaseError as error:
                if error.diag.message_primary is None:
                    raise
                raise BadRequest(f"Postgres: {error.diag.message_primary}") from error
            if cursor.description is None:
                raise BadRequest("The statement returns no rows.")
            return [column.name for column in cursor.description], await cursor.fetchall()


async def list_analysts(pool: Pool) -> list[Analyst]:
    """Return the analysts, sorted by project and name."""
    with store_errors():
        async with pooled_connection(pool) as connection:
            cursor = await connection.execute(_LIST)
            return [Analyst(*row) for row in await cursor.fetchall()]


async def _create(connection: PoolConnection, role: str, password: str) -> None:
    # The server may log statements: it receives the verifier instead of the password.
    verifier = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    await connection.execute(
        sql.SQL("CREATE ROLE {} LOGIN CONNECTION LIMIT {} PASSWORD {}").format(
            sql.Identifier(role), sql.Literal(CONNECTIONS), sql.Literal(verifier.decode())
        )
    )
    # Postgres's default, after the schema of the views.
    await _on_roles(
        connection,
        'ALTER ROLE {} IN DATABASE {} SET search_path = {}, "$user", public',
        role,
        connection.info.dbname,
        VIEWS_SCHEMA,
    )


async def _drop(connection: PoolConnection, role: str) -> None:
    # Unless it is a superuser, only a member may end a role's sessions and drop its privileges.
    await _on_roles(connection, "GRANT {} TO CURRENT_USER WITH INHERIT TRUE", role)
    # Twice: an open transaction of the role can lock it, and a session may begin in between.
    await _end_sessions(connection, role)
    await _on_roles(connection, "ALTER ROLE {} NOLOGIN PASSWORD NULL", role)
    await _end_sessions(connection, role)
    owned = await (await connection.execute(_OWNED, [role])).fetchall()
    if owned:
        raise errors.DependentObjectsStillExist("It owns " + ", ".join(name for (name,) in owned))
    async with connection.transaction():
        await _on_roles(connection, "DROP OWNED BY {}", role)  # privileges: it owns nothing here
        await _on_roles(connection, "DROP ROLE {}", role)


async def _end_sessions(connection: PoolConnection, role: str, everywhere: bool = True) -> None:
    """End the role's sessions in this database, or in all databases if `everywhere`.

    Sessions that the database's user may not end continue.
    """
    await connection.execute(_END_SESSIONS, [TERMINATION_MS, role, everywhere])


async def _on_roles(connection: PoolConnection, statement: str, *names: str) -> None:
    await connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


async def _one(connection: PoolConnection, query: str, name: str) -> tuple[Any, ...] | None:
    cursor = await connection.execute(query, [name])
    return await cursor.fetchone()


def _url_for(connection: PoolConnection, role: str, password: str | None) -> str:
    """Return the URL with which `role` connects to the database of `connection`."""
    info = connection.info
    parameters = {
        key: value for key, value in info.get_parameters().items() if key in _URL_PARAMETERS
    }
    user = quote(role, safe="") + (f":{quote(password, safe='')}" if password else "")
    if re.fullmatch(r"[\w.-]+", info.host):
        server = f"{info.host}:{info.port}"
    else:  # a directory of sockets, or an address of IPv6
        server, parameters = "", {"host": info.host, "port": str(info.port), **parameters}
    query = f"?{urlencode(parameters)}" if parameters else ""
    return f"postgresql://{user}@{server}/{quote(info.dbname, safe='')}{query}"


@contextmanager
def _explained(role: str) -> Iterator[None]:
    """Translate Postgres's errors of statements about roles into errors with advice."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            "The database's user may not create or change roles. As a superuser: "
            f"ALTER ROLE the_user CREATEROLE; GRANT {READER_ROLE} TO the_user WITH ADMIN OPTION"
        ) from error
    except errors.UndefinedObject as error:
        raise ConfigurationError(
            f"The role {READER_ROLE} does not exist. As a superuser: CREATE ROLE {READER_ROLE} "
            "NOLOGIN. Then run `tracer migrate`."
        ) from error
    except (errors.DuplicateObject, errors.UniqueViolation) as error:
        raise BadRequest(
            f"Another session created the role {role!r} at the same time. Run the command again."
        ) from error
    except (errors.ReservedName, errors.InvalidName, errors.SyntaxError) as error:
        raise BadRequest(f"A role cannot have the name {role!r}. Choose another.") from error


@contextmanager
def _access_revoked(role: str) -> Iterator[None]:
    """Translate the errors of dropping a role.

    The error that is raised names the objects that prevent it, and how to remove them.
    """
    try:
        yield
    except (errors.DependentObjectsStillExist, errors.InsufficientPrivilege) as error:
        why = error.diag.message_detail or str(error)
        name = sql.Identifier(role).as_string()
        raise BadRequest(
            f"The role {role!r} can no longer read records, but Postgres could not drop it: "
            f"{' '.join(why.split()).rstrip('.')}. As a superuser: REASSIGN OWNED BY "
            f"{name} TO another_role; DROP OWNED BY {name}; DROP ROLE {name}"
        ) from error
