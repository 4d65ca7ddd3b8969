"""Transactions that see only one project, even if a query has no condition on the project.

Each transaction starts by assuming the role of row-level security
(`tracer.storage.postgres.connection.row_security`), and by setting the project. Both end with the
transaction, so that a pooler can reuse the connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncRawCursor

from tracer.errors import TracerError
from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.storage.postgres.connection.pool import (
    READ_SECONDS,
    Pool,
    PoolConnection,
    SyncConnection,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.connection.row_security import (
    entering,
    role_of,
    standing_of,
    standing_of_sync,
)

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
    return [await _rows(each) for each in cursors[:-1]]


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
        return [await _rows(each) for each in cursors[len(first) : -len(last)]]


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


async def _rows(cursor: AsyncRawCursor[Row]) -> list[Row]:
    return await cursor.fetchall() if cursor.description else []
