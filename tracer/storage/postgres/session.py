"""Sessions of one project: connections that row-level security limits to its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncRawCursor
from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from tracer.errors import TracerError
from tracer.logs import get_logger
from tracer.records import DEFAULT_PROJECT_ID
from tracer.storage.postgres.pool import (
    READ_SECONDS,
    Pool,
    PoolConnection,
    SyncConnection,
    pooled_connection,
    store_errors,
)

# --- Row-level security: a role that sees the rows of one project only.
#
# Row-level security isolates projects even if a query has no condition on the project. It is set up
# from the table definitions after every migration, so a new table with a `project_id` is included.
# It does not apply to the tables' owner. So the owner becomes `tracer_program` for each
# transaction.

PROGRAM_ROLE = "tracer_program"
POLICY = "of_its_project"

ANALYSTS_POLICY = "for_analysts"
"""The policy that shows analysts the rows of their project."""

VIEWS_SCHEMA = "trace"
"""The schema of the views for analysts."""

HOW_TO_CORRECT = (
    "Row-level security does not hold: the database's user owns the tables and cannot become"
    f" {PROGRAM_ROLE}. As a superuser: CREATE ROLE {PROGRAM_ROLE} NOLOGIN (unless it exists);"
    f" GRANT {PROGRAM_ROLE} TO the user WITH INHERIT FALSE. Then run `tracer migrate`."
)

_RIGHTS = {
    "analyst": "SELECT",
    "api_key": (
        "SELECT (key_id, project_id, name, scopes, created_at, last_used_at, revoked_at),"
        " INSERT, UPDATE (revoked_at)"
    ),
    "project": "SELECT, UPDATE (keep_days, keep_runs, payloads, summed_at, erased_at)",
}
"""The program role's rights on the tables whose rows it may not freely read and write."""

_EVERY_RIGHT = "SELECT, INSERT, UPDATE, DELETE"

log = get_logger(__name__)


@dataclass(frozen=True)
class Standing:
    """How row-level security applies to a connection."""

    is_walled: bool
    """Whether the connection's user can `SET ROLE` to the role that the policies apply to."""
    is_spread: bool
    """Whether Citus is installed. If so, its workers need the role and the project, too."""


_standings: WeakKeyDictionary[PoolConnection | SyncConnection, Standing] = WeakKeyDictionary()

STANDING = f"""
SELECT coalesce((
    SELECT pg_has_role(role.oid, 'SET') AND NOT role.rolsuper AND NOT role.rolbypassrls
        AND run.relrowsecurity AND has_table_privilege(role.oid, run.oid, 'INSERT')
    FROM pg_roles AS role, pg_class AS run
    WHERE role.rolname = '{PROGRAM_ROLE}' AND run.oid = to_regclass('run')
), false), EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"""


async def standing_of(connection: PoolConnection) -> Standing:
    """Return how row-level security applies to a connection.

    The result is cached once the user can `SET ROLE` to the program's role. Until then each call
    queries it, so no restart is needed after the role is granted.
    """
    standing = _standings.get(connection)
    if standing is None:
        [row] = await (await connection.execute(STANDING)).fetchall()
        standing = _remembered(connection, Standing(*row))
    return standing


def standing_of_sync(connection: SyncConnection) -> Standing:
    """Return how row-level security applies to a synchronous connection; see `standing_of`."""
    standing = _standings.get(connection)
    if standing is None:
        [row] = connection.execute(STANDING).fetchall()
        standing = _remembered(connection, Standing(*row))
    return standing


def _remembered(connection: PoolConnection | SyncConnection, standing: Standing) -> Standing:
    if standing.is_walled:
        _standings[connection] = standing
    return standing


def role_of(standing: Standing) -> str:
    """Return the role of a project's transactions, for `SET ROLE`.

    `none` means the tables' owner, without row-level security.
    """
    return PROGRAM_ROLE if standing.is_walled else "none"


def entering(standing: Standing, project_id: int | None) -> list[str]:
    """Return the statements that restrict the rest of a transaction to a project, in order.

    The statements contain the values as literals. Citus only passes on settings of `SET LOCAL` to
    its workers, and `SET LOCAL` takes no parameters.

    Args:
        standing: How row-level security applies to the connection.
        project_id: The project; None: return to the role of the tables' owner, which sees all
            projects.
    """
    if project_id is None:
        return ["SET LOCAL ROLE none"]
    return [
        f"SET LOCAL ROLE {role_of(standing)}",
        f"SET LOCAL tracer.project_id TO {int(project_id)}",
    ]


def secure_tables(connection: Connection, tables: Iterable[Table]) -> None:
    """Set up missing parts of row-level security, in the caller's transaction.

    Args:
        connection: A connection of the tables' owner.
        tables: All tables of the schema. They must exist.
    """
    if not _ensure_role(connection):
        log.warning("row_level_security_off", detail=HOW_TO_CORRECT)
        return
    schema = connection.scalar(text("SELECT quote_ident(current_schema)"))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {PROGRAM_ROLE}"))
    secured = secured_tables(connection, POLICY)
    for table in tables:
        if "project_id" in table.columns:
            if table.name not in secured:
                _secure(connection, table)
            elif PROGRAM_ROLE not in secured[table.name]:  # everyone before 0011
                connection.execute(text(f"ALTER POLICY {POLICY} ON {table.name} TO {PROGRAM_ROLE}"))
            rights = _RIGHTS.get(table.name, _EVERY_RIGHT)
            connection.execute(text(f"GRANT {rights} ON {table.name} TO {PROGRAM_ROLE}"))


def secured_tables(connection: Connection, policy: str) -> dict[str, list[str]]:
    """Return the tables that have a policy, with the roles that the policy applies to.

    An empty list of roles means all roles.
    """
    rows = connection.execute(
        text(
            "SELECT polrelid::regclass::text, ARRAY(SELECT rolname::text FROM pg_roles"
            " WHERE oid = ANY(polroles)) FROM pg_policy WHERE polname = :policy"
        ),
        {"policy": policy},
    )
    return {row[0]: row[1] for row in rows}


def _secure(connection: Connection, table: Table) -> None:
    connection.execute(text(f"ALTER TABLE {table.name} ENABLE ROW LEVEL SECURITY"))
    connection.execute(
        text(
            f"CREATE POLICY {POLICY} ON {table.name} TO {PROGRAM_ROLE}"
            " USING (project_id = current_setting('tracer.project_id')::integer)"
        )
    )


def make_role(connection: Connection, name: str) -> bool:
    """Create a role if it is missing and may be created. Return whether it exists."""
    is_there = text(f"SELECT to_regrole('{name}') IS NOT NULL")
    if not connection.scalar(is_there):
        _try(connection, f"CREATE ROLE {name} NOLOGIN NOINHERIT")
    return bool(connection.scalar(is_there))


def _ensure_role(connection: Connection) -> bool:
    """Create the program's role if possible. Return whether the user can `SET ROLE` to it."""
    make_role(connection, PROGRAM_ROLE)
    can_become = text(
        f"SELECT coalesce(pg_has_role(to_regrole('{PROGRAM_ROLE}')::oid, 'SET'), false)"
    )
    if not connection.scalar(can_become):
        _try(connection, f"GRANT {PROGRAM_ROLE} TO CURRENT_USER WITH INHERIT FALSE, SET TRUE")
    return bool(connection.scalar(can_become))


def _try(connection: Connection, statement: str) -> None:
    """Execute a statement in a savepoint, and ignore two failures.

    The user may lack the right, or another server may have executed the statement already.
    """
    try:
        with connection.begin_nested():
            connection.execute(text(statement))
    except DBAPIError as error:
        if not isinstance(
            error.orig,
            (
                psycopg.errors.InsufficientPrivilege,
                psycopg.errors.DuplicateObject,
                psycopg.errors.UniqueViolation,
                psycopg.errors.UndefinedObject,
            ),
        ):
            raise


# --- Transactions that see only one project, even if a query has no condition on the project.
#
# Each transaction starts by assuming the role of row-level security, and by
# setting the project. Both end with the transaction, so that a pooler can reuse the connection.

T = TypeVar("T")

Statement = tuple[str, Sequence[Any]]
"""SQL for a raw cursor, and its parameters."""

Row = tuple[Any, ...]

_ENTER = "SELECT set_config('role', $1, true), set_config('tracer.project_id', $2, true)"
_CHECK_REFERENCES: Statement = ("SET CONSTRAINTS ALL IMMEDIATE", ())


@dataclass(frozen=True)
class ProjectPool:
    """A pool of connections that see one project."""

    pool: Pool
    project_id: int = DEFAULT_PROJECT_ID

    @property
    def walled_project_id(self) -> int:
        """The project to which row-level security restricts its transactions."""
        return self.project_id


@asynccontextmanager
async def in_project(
    project: ProjectPool, seconds: float | None = READ_SECONDS, *, sees_one_state: bool = False
) -> AsyncIterator[PoolConnection]:
    """Yield a connection in a pipelined transaction of a project, which is committed at the end.

    Args:
        project: The project whose rows the transaction sees.
        seconds: How long the connection may be used; None: unlimited.
        sees_one_state: Whether all statements see the snapshot of the transaction's beginning. If
            so, changing a row that another transaction has changed since then fails.

    Raises:
        TimeoutError: The connection was used for longer than `seconds`.
    """
    async with pooled_connection(project.pool, seconds) as connection:
        try:
            begin = "BEGIN ISOLATION LEVEL REPEATABLE READ" if sees_one_state else "BEGIN"
            async with _begun(connection, project, begin):
                yield connection
                await connection.execute("COMMIT", prepare=False)
        except TracerError:
            # Not with a statement: only `rollback` makes the driver forget new prepared statements.
            await connection.rollback()
            raise


async def in_snapshot(project: ProjectPool, read: Callable[[SyncConnection], T]) -> T:
    """Read from one snapshot of a project, in a worker thread, and return the result of `read`.

    Args:
        project: The project whose rows `read` sees.
        read: Reads rows from a connection in pipeline mode, which is read-only.

    Raises:
        StoreUnavailable: The database does not answer, or `read` took longer than `READ_SECONDS`.
        TracerError: `read` raised it.
    """

    def within(connection: SyncConnection) -> T:
        statements = entering(standing_of_sync(connection), project.walled_project_id)
        with connection.pipeline(), connection.transaction():
            for each in statements:
                connection.execute(each, prepare=False)
            return read(connection)

    with store_errors():
        return await project.pool.readers.run(within)


async def fetched(
    project: ProjectPool, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> list[Row]:
    """Return the rows of a query, which sees only a project.

    Raises:
        StoreUnavailable: The database does not answer, or the query took too long.
    """
    return await in_snapshot(project, lambda c: c.execute(query, parameters or None).fetchall())


@asynccontextmanager
async def _begun(
    connection: PoolConnection, project: ProjectPool, begin: str
) -> AsyncIterator[None]:
    """Begin a transaction of a project in a pipeline.

    The caller must end the transaction. This function does not, even if the block raises an error.
    """
    standing = await standing_of(connection)
    async with connection.pipeline():
        for each in (begin, *entering(standing, project.walled_project_id)):
            await connection.execute(each, prepare=False)
        yield


@asynccontextmanager
async def transaction_in(
    project: ProjectPool, *first: Statement
) -> AsyncIterator[tuple[PoolConnection, list[Row]]]:
    """Yield a connection in a transaction of a project, without a time limit.

    The connection is not in pipeline mode, so the caller can read results. Commit with `committed`.
    Without it, the transaction is rolled back.

    Args:
        project: The project whose rows the transaction sees.
        first: Statements to execute with BEGIN, in one round trip. The rows of the last one are
            yielded too.
    """
    async with pooled_connection(project.pool, seconds=None) as connection:
        async with _begun(connection, project, "BEGIN"):
            cursors = await _executing(connection, first)
        yield connection, await cursors[-1].fetchall()


async def committed(connection: PoolConnection, statements: Iterable[Statement]) -> list[list[Row]]:
    """Execute the last statements of a transaction and commit it, in one round trip.

    Returns:
        The rows of each statement.
    """
    async with connection.pipeline():
        cursors = await _executing(connection, (*statements, _CHECK_REFERENCES))
        await connection.execute("COMMIT", prepare=False)
    return [await _fetch_all(each) for each in cursors[:-1]]


async def executed(project: ProjectPool, statements: Iterable[Statement]) -> list[list[Row]]:
    """Execute statements in one transaction of a project and one round trip.

    A pipeline in autocommit mode is one implicit transaction, which is committed when the pipeline
    ends. Citus needs explicit BEGIN and COMMIT statements.

    Args:
        project: The project whose rows the statements see.
        statements: The statements, in order.

    Returns:
        The rows of each statement.
    """
    async with pooled_connection(project.pool, seconds=None) as connection:
        standing = await standing_of(connection)
        # Checked by a statement: if a commit fails in a pipeline, the driver loses the connection.
        last: list[Statement] = [_CHECK_REFERENCES]
        if standing.is_spread:  # Citus commits each statement of a pipeline without BEGIN
            begin = ["BEGIN", *entering(standing, project.walled_project_id)]
            first: list[Statement] = [(each, ()) for each in begin]
            last.append(("COMMIT", ()))
        else:  # three statements fewer: a tenth of the processor time of a small write
            first = [(_ENTER, [role_of(standing), str(project.walled_project_id)])]
        async with connection.pipeline():
            cursors = await _executing(connection, (*first, *statements, *last))
        return [await _fetch_all(each) for each in cursors[len(first) : -len(last)]]


async def _executing(
    connection: PoolConnection, statements: Iterable[Statement]
) -> list[AsyncRawCursor[Row]]:
    """Send statements in a pipeline, and return a cursor for each.

    The cursors have their rows when the pipeline ends.
    """
    cursors: list[AsyncRawCursor[Row]] = []
    for statement, parameters in statements:
        cursor = AsyncRawCursor(connection)
        await cursor.execute(statement, parameters, prepare=True)
        cursors.append(cursor)
    return cursors


async def _fetch_all(cursor: AsyncRawCursor[Row]) -> list[Row]:
    return await cursor.fetchall() if cursor.description else []
